# Rotations by GPArotation and stats. Arguments: a JSON file with `loadings`, `target`
# (null where free) and `starts`.
suppressPackageStartupMessages({library(GPArotation); library(jsonlite)})
input <- fromJSON(commandArgs(TRUE)[1])
A <- input$loadings
K <- ncol(A)
known <- !is.na(input$target)
W <- ifelse(known, 1, 0)
H <- ifelse(known, input$target, 0)
set.seed(1)
starts <- c(list(diag(K)), lapply(1:15, function(k) {
  qr.Q(qr(matrix(rnorm(K^2), K)))
}))
best <- function(rotate, ..., from = starts[seq_len(input$starts)]) {
  ends <- lapply(from, function(T) {
    suppressWarnings(rotate(A, Tmat = T, eps = 1e-8, maxit = 1000, ...))
  })
  values <- sapply(ends, function(end) tail(end$Table[, 2], 1))
  end <- ends[[which.min(values)]]
  phi <- if (is.null(end$Phi)) diag(K) else end$Phi
  list(loadings = unname(unclass(end$loadings)), phi = unname(phi),
       value = min(values))
}
found <- list(
  "varimax, raw" = best(Varimax), quartimax = best(quartimax),
  oblimin = best(oblimin), "oblimin, Kaiser" = best(oblimin, normalize = TRUE),
  geomin = best(geominQ), geomin_orthogonal = best(geominT),
  target = best(pstQ, W = W, Target = H),
  target_orthogonal = best(pstT, W = W, Target = H))
if (K > 2) {
  # It has many local minima.
  found$bifactor <- best(bifactorT, from = starts)
  # irtjax divides the criterion by 4, as those of the other rotations.
  found$bifactor$value <- found$bifactor$value / 4
}
v <- stats::varimax(A, eps = 1e-15)
p <- stats::promax(v$loadings, m = 4)
found$varimax <- list(loadings = unname(unclass(v$loadings)), phi = diag(K))
found$promax <- list(loadings = unname(unclass(p$loadings)),
                     phi = unname(solve(crossprod(p$rotmat))))
cat(toJSON(found, digits = NA, auto_unbox = TRUE))
