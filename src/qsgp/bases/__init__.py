"""Basis functions phi_1 .. phi_m and their prior precision S. Adding one: a file here, and its class in BY_NAME.

Model files name a basis by its class. ``settings`` and ``tensors`` are what it stores there, ``restore`` reads them,
and ``shapes`` says what the tensors must look like.
"""

from typing import Any

from qsgp.bases.fourier import Fourier
from qsgp.bases.grid import Grid
from qsgp.bases.inducing import Inducing, Whitened
from qsgp.bases.rvm import KernelFunctions

BY_NAME: dict[str, type[Any]] = {each.__name__: each for each in (Fourier, Grid, Inducing, KernelFunctions, Whitened)}

__all__ = ["BY_NAME", "Fourier", "Grid", "Inducing", "KernelFunctions", "Whitened"]
