# Rasch's model with random subjects and random items: lme4, quadrature, and sampling.
# Arguments: a JSON file with `y`, `sd_subjects`, `sd_items`, `mean`, `small`
# ("subjects" or "items": the side whose Laplace approximation is kept) and `draws`.
suppressPackageStartupMessages({library(lme4); library(jsonlite)})
input <- fromJSON(commandArgs(TRUE)[1])
y <- input$y
n <- nrow(y)
J <- ncol(y)
long <- data.frame(y = as.vector(y), subject = factor(rep(1:n, J), levels = 1:n),
                   item = factor(rep(1:J, each = n), levels = 1:J))

# Both sides random, by Laplace.
both <- glmer(y ~ 1 + (1 | subject) + (1 | item), long, binomial,
              control = glmerControl(tolPwrss = 1e-10))
modes <- ranef(both, condVar = TRUE)
sds <- sapply(VarCorr(both), attr, "stddev")
# Errors that count the mean's: Henderson's equations at the modes.
w <- fitted(both) * (1 - fitted(both))
Z <- cbind(1, model.matrix(~ 0 + subject, long), model.matrix(~ 0 + item, long))
penalty <- c(0, rep(1 / sds[["subject.(Intercept)"]]^2, n),
             rep(1 / sds[["item.(Intercept)"]]^2, J))
V <- solve(crossprod(Z * sqrt(w)) + diag(penalty))
of_subjects <- V[1 + 1:n, 1 + 1:n]
# The same approximation at irtjax's estimates: what it costs apart from other SDs.
dev <- update(both, devFunOnly = TRUE)
own <- getME(both, "theta")
own["subject.(Intercept)"] <- input$sd_subjects
own["item.(Intercept)"] <- input$sd_items
laplace <- -dev(c(own, input$mean)) / 2
starts <- getME(both, "Gp")
first <- starts[match("subject.(Intercept)", names(own))]
laplace_ability <- environment(dev)$pp$b(1)[first + 1:n]

# The log marginal likelihood of given variances: items by quadrature, subjects by
# Laplace, or the reverse on the transposed table.
points <- seq(-8, 8, length.out = 161)
marginal <- function(y, mean, sd_rows, sd_columns) {
  n <- nrow(y)
  nodes <- mean + sd_columns * points
  log_weight <- dnorm(points, log = TRUE) - log(sum(dnorm(points)))
  theta <- rep(0, n)
  for (step in 1:100) {
    eta <- outer(theta, nodes, "+")
    p <- plogis(eta)
    # [columns, nodes]: posterior of each column's parameter.
    height <- crossprod(y, eta) + rep(log_weight - colSums(log1p(exp(eta))),
                                      each = ncol(y))
    top <- apply(height, 1, max)
    post <- exp(height - top)
    total <- rowSums(post)
    post <- post / total
    expected <- tcrossprod(p, post)          # [rows, columns]
    slope <- rowSums(y - expected) - theta / sd_rows^2
    bend <- diag(rowSums(tcrossprod(p * (1 - p), post)) + 1 / sd_rows^2, n)
    # Less the covariance, over a column's posterior, of the residuals.
    bend <- bend - (p %*% (colSums(post) * t(p)) - tcrossprod(expected))
    move <- solve(bend, slope)
    theta <- theta + move
    if (max(abs(move)) < 1e-10) break
  }
  if (!(max(abs(move)) < 1e-6)) stop("the modes of the rows did not converge")
  value <- sum(top + log(total)) - sum(theta^2) / 2 / sd_rows^2 - n * log(sd_rows) -
    determinant(bend)$modulus / 2
  list(value = as.numeric(value), theta = theta)
}
few <- input$small == "subjects"
side <- if (few) y else t(y)
height <- function(mean, sd_subjects, sd_items) {
  sds <- if (few) c(sd_subjects, sd_items) else c(sd_items, sd_subjects)
  marginal(side, mean, sds[1], sds[2])$value
}
# Modes under irtjax's priors: half-normal of both standard deviations, scales 5 and 2,
# as densities of their logarithms, and N(0, 5^2) of the mean of items, which is
# integrated out (`target`) or estimated (`together`).
profile <- function(logs) {
  inner <- optimize(function(m) height(m, exp(logs[1]), exp(logs[2])) - m^2 / 50,
                    c(-6, 6), maximum = TRUE, tol = 1e-6)
  h <- 0.02
  f <- function(m) height(m, exp(logs[1]), exp(logs[2])) - m^2 / 50
  bend <- -(f(inner$maximum + h) - 2 * inner$objective + f(inner$maximum - h)) / h^2
  list(value = inner$objective - log(bend) / 2, mean = inner$maximum)
}
target <- function(logs) {
  sds <- exp(logs)
  -(profile(logs)$value - sds[1]^2 / 50 - sds[2]^2 / 8 + sum(logs))
}
found <- optim(log(c(input$sd_subjects, input$sd_items)), target,
               control = list(reltol = 1e-9, maxit = 120))
together <- function(x) {
  sds <- exp(x[2:3])
  -(height(x[1], sds[1], sds[2]) - x[1]^2 / 50 - sds[1]^2 / 50 - sds[2]^2 / 8 +
    sum(x[2:3]))
}
joint <- optim(c(input$mean, log(c(input$sd_subjects, input$sd_items))), together,
               control = list(reltol = 1e-10, maxit = 300))

# Posterior moments given the standard deviations, by random-walk Metropolis.
set.seed(1)
sample <- function(draws) {
  theta <- modes$subject[, 1]
  b <- modes$item[, 1] + fixef(both)
  mean <- fixef(both)[[1]]
  step_theta <- 2.4 * sqrt(1 / (rowSums(matrix(w, n)) + 1 / input$sd_subjects^2))
  step_b <- 2.4 * sqrt(1 / (colSums(matrix(w, n)) + 1 / input$sd_items^2))
  cells <- function(theta, b) {
    eta <- outer(theta, b, "+")
    y * eta - log1p(exp(eta))
  }
  now <- cells(theta, b)
  sums <- list(theta = 0, b = 0, b2 = 0, cross = matrix(0, n, n), mean = 0)
  kept <- 0
  for (t in 1:draws) {
    for (sub in 1:2) {
      new <- theta + step_theta * rnorm(n)
      other <- cells(new, b)
      gain <- rowSums(other - now) + (theta^2 - new^2) / 2 / input$sd_subjects^2
      ok <- log(runif(n)) < gain
      theta[ok] <- new[ok]
      now[ok, ] <- other[ok, ]
      new <- b + step_b * rnorm(J)
      other <- cells(theta, new)
      gain <- colSums(other - now) +
        ((b - mean)^2 - (new - mean)^2) / 2 / input$sd_items^2
      ok <- log(runif(J)) < gain
      b[ok] <- new[ok]
      now[, ok] <- other[, ok]
    }
    # The mean of items, N(0, 5^2); then a common shift, of which cells do not depend.
    precision <- J / input$sd_items^2 + 1 / 25
    mean <- rnorm(1, sum(b) / input$sd_items^2 / precision, precision^-0.5)
    precision <- n / input$sd_subjects^2 + J / input$sd_items^2
    centre <- (sum(theta) / input$sd_subjects^2 - sum(b - mean) / input$sd_items^2) /
      precision
    shift <- rnorm(1, centre, precision^-0.5)
    theta <- theta - shift
    b <- b + shift
    if (t > draws / 10) {
      kept <- kept + 1
      sums$theta <- sums$theta + theta
      sums$cross <- sums$cross + tcrossprod(theta)
      sums$b <- sums$b + b
      sums$b2 <- sums$b2 + b^2
      sums$mean <- sums$mean + mean
    }
  }
  theta <- sums$theta / kept
  b <- sums$b / kept
  list(theta = theta, covariance = sums$cross / kept - tcrossprod(theta), b = b,
       b_se = sqrt(sums$b2 / kept - b^2), mean = sums$mean / kept)
}

# Subjects fixed, items random: errors of differences of subjects.
fixed <- NULL
if (few) {
  # The default optimiser stopped at a gradient of 0.28 on the 12 models.
  one <- glmer(y ~ 0 + subject + (1 | item), long, binomial, nAGQ = 15,
               control = glmerControl(optimizer = "bobyqa"))
  # The covariance counts the error of the items' SD; the second one does not.
  given <- 2 * solve(one@optinfo$derivs$Hessian[-1, -1])
  fixed <- list(theta = unname(fixef(one)), covariance = unname(as.matrix(vcov(one))),
                given_sd = unname(given),
                sd_items = attr(VarCorr(one)$item, "stddev")[[1]])
}
cat(toJSON(list(
  log_likelihood = as.numeric(logLik(both)), mean = fixef(both)[[1]],
  sds = unname(sds[c("subject.(Intercept)", "item.(Intercept)")]),
  ability = modes$subject[, 1],
  condvar = sqrt(attr(modes$subject, "postVar")[1, 1, ]),
  henderson = sqrt(diag(of_subjects)),
  laplace = laplace, laplace_ability = unname(laplace_ability),
  at_theirs = height(input$mean, input$sd_subjects, input$sd_items),
  joint = c(joint$par[1], exp(joint$par[2:3])),
  integrated = exp(found$par), sampled = sample(input$draws), fixed = fixed
), digits = NA, auto_unbox = TRUE))
