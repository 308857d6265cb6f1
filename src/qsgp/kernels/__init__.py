"""Positive definite functions k(x, z). Adding one: a file here, and its class in the list below.

From outside the library `register` does the same as a decorator.
"""

from qsgp.kernels.compose import Product, Sum
from qsgp.kernels.gram import gram
from qsgp.kernels.laplacian import Laplacian
from qsgp.kernels.levels import WithLevels
from qsgp.kernels.mapped import Mapped
from qsgp.kernels.matern import Matern12, Matern32, Matern52
from qsgp.kernels.registry import BY_NAME, factorising, register
from qsgp.kernels.separable import Separable
from qsgp.kernels.spectral_sum import SpectralSum
from qsgp.kernels.squared_exponential import SquaredExponential
from qsgp.kernels.stationary import hyperparameters
from qsgp.kernels.tied import Tied

for _kernel in (SquaredExponential, Matern12, Matern32, Matern52, Laplacian):
    register(_kernel)

AUTO = ("matern32", "rbf", "matern52")  # what kernel="auto" compares
ROUGH = ("matern12", "laplacian")  # and where there are rows enough to tell

__all__ = [
    "AUTO",
    "BY_NAME",
    "Laplacian",
    "Mapped",
    "Matern12",
    "Matern32",
    "Matern52",
    "ROUGH",
    "Product",
    "Separable",
    "SpectralSum",
    "SquaredExponential",
    "Sum",
    "Tied",
    "WithLevels",
    "factorising",
    "gram",
    "hyperparameters",
    "register",
]
