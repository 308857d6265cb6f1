"""Quadruply stochastic Gaussian processes."""
