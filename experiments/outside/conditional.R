# Conditional maximum likelihood and fit of items by eRm. Arguments: a JSON file with
# `binary` and, if there are any, `ordered` responses.
suppressPackageStartupMessages({library(eRm); library(jsonlite)})
input <- fromJSON(commandArgs(TRUE)[1])
fit <- function(y, model) {
  colnames(y) <- paste0("i", seq_len(ncol(y)))
  suppressWarnings(model(y))
}
# Errors are sometimes NaN.
part <- function(m) list(beta = unname(m$betapar), error = unname(m$se.beta))
rasch <- fit(input$binary, RM)
people <- person.parameter(rasch)
items <- itemfit(people)
found <- list(
  rasch = part(rasch),
  infit = unname(items$i.infitMSQ), outfit = unname(items$i.outfitMSQ),
  ability = as.numeric(people$theta.table[, 1]))
if (!is.null(input$ordered)) {
  found$pcm <- part(fit(input$ordered, PCM))
  found$rsm <- part(fit(input$ordered, RSM))
}
cat(toJSON(found, digits = NA, auto_unbox = TRUE))
