# psych, lavaan and stats. Arguments: a JSON file with `y`, right and wrong responses,
# `p`, p-values, and `pair`, the responses of two subjects.
suppressPackageStartupMessages({library(psych); library(lavaan); library(jsonlite)})
input <- fromJSON(commandArgs(TRUE)[1])
y <- as.data.frame(input$y)
names(y) <- paste0("i", seq_along(y))
J <- ncol(y)
a <- suppressWarnings(alpha(y, check.keys = FALSE))
syntax <- paste("f =~", paste(names(y), collapse = " + "))
w <- standardizedSolution(cfa(syntax, y, ordered = names(y), std.lv = TRUE,
                              estimator = "WLSMV"))
pair <- input$pair
t <- t.test(pair[1, ], pair[2, ], paired = TRUE)
ahead <- sum(pair[1, ] > pair[2, ])
behind <- sum(pair[1, ] < pair[2, ])
cat(toJSON(list(
  alpha = a$total$raw_alpha, alpha_without = a$alpha.drop$raw_alpha,
  item_rest = a$item.stats$r.drop, tetrachoric = unname(tetrachoric(y, correct = 0, smooth = FALSE)$rho),
  loadings = w[1:J, "est.std"], loading_errors = w[1:J, "se"],
  adjusted = p.adjust(input$p, "BH"),
  t = c(t$estimate, t$stderr, t$conf.int, t$p.value),
  sign = binom.test(ahead, ahead + behind)$p.value
), digits = NA, auto_unbox = TRUE))
