"""Numerical kernels: products, solves, bijections, quadrature, acceleration."""
