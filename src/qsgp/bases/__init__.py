"""Basis functions phi_1 .. phi_m and their prior precision S. Adding one: a file and a line here."""

from qsgp.bases.fourier import Fourier
from qsgp.bases.grid import Grid
from qsgp.bases.inducing import Inducing, Whitened
from qsgp.bases.rvm import KernelFunctions

__all__ = ["Fourier", "Grid", "Inducing", "KernelFunctions", "Whitened"]
