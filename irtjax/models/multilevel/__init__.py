"""Multilevel models: items nested in benchmarks, correlated abilities."""
