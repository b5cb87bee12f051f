"""Responses that were not seen: predictions and posterior predictive checks."""
