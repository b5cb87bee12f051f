"""Marginal maximum likelihood: EM and stochastic EM."""
