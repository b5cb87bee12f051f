"""Empirical Bayes: items integrated out by the Laplace approximation."""
