"""Positive definite functions k(x, z). Adding one: a file here and a line in BY_NAME."""

from collections.abc import Callable

from torch import Tensor

from qsgp.interfaces import Kernel
from qsgp.kernels.compose import Product, Sum
from qsgp.kernels.gram import gram
from qsgp.kernels.matern import Matern12, Matern32, Matern52
from qsgp.kernels.squared_exponential import SquaredExponential
from qsgp.kernels.stationary import hyperparameters
from qsgp.kernels.tied import Tied

# constructors of (lengthscale, variance); all can draw frequencies
BY_NAME: dict[str, Callable[[Tensor, Tensor], Kernel]] = {
    "rbf": SquaredExponential,
    "matern12": Matern12,
    "matern32": Matern32,
    "matern52": Matern52,
}

__all__ = [
    "BY_NAME",
    "Matern12",
    "Matern32",
    "Matern52",
    "Product",
    "SquaredExponential",
    "Sum",
    "Tied",
    "gram",
    "hyperparameters",
]
