"""Hyperparameters: what the evidence of some rows, and rows held out, say of the kernel and the noise."""

from qsgp.hyperparameters.exact_gp import fit_exact_gp

__all__ = ["fit_exact_gp"]
