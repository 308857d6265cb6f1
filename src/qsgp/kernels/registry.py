"""The kernels that can be asked for by name, in keywords, commands and model files."""

from typing import Any, ClassVar, Protocol, TypeVar

from jaxtyping import Float
from torch import Tensor

from qsgp.engine import FORMULAS
from qsgp.engine.formulas import Formula
from qsgp.interfaces import SpectralKernel
from qsgp.kernels import stationary


class Named(SpectralKernel, Protocol):
    """What a class of kernels must have to be known by its name."""

    name: ClassVar[str]
    words: ClassVar[str]  # for people: what it is, and what functions it describes

    def __init__(self, lengthscale: Float[Tensor, " d"], variance: Float[Tensor, ""]) -> None: ...

    @staticmethod
    def profile(r: Tensor) -> Tensor:
        """rho(r): the value at distance r for unit variance."""
        ...


K = TypeVar("K", bound=type[Any])

BY_NAME: dict[str, type[Named]] = {}
_NEEDED = ("name", "words", "degrees", "profile", "frequencies", "diag", "parameters", "with_parameters", "__call__")


def register(kernel: K) -> K:
    """Make a class of kernels known by its ``name``; to be used as a decorator.

    The engine computes products by its ``profile``. More attributes are optional: ``slope``, ``value_and_slope`` and
    ``shape_of_slope`` make gradients and searches of hyperparameters faster, ``steep`` is for a kernel with an edge at
    r = 0, ``norm`` = 1 for one of the sum of absolute differences, ``heavy`` for frequencies that float32 cannot hold.
    """
    lacking = [each for each in _NEEDED if not hasattr(kernel, each)]
    if lacking:
        raise TypeError(
            f"Expected a kernel with {', '.join(_NEEDED)}, got {kernel.__name__} without {', '.join(lacking)}. Kernels "
            "that cannot draw frequencies serve inducing functions in Python; they need no name."
        )
    if BY_NAME.get(kernel.name, kernel).__qualname__ != kernel.__qualname__:
        raise ValueError(
            f"Expected a name that no other kernel has, got {kernel.name!r}, the name of "
            f"{BY_NAME[kernel.name].__name__}. Choose another name."
        )
    for method in (stationary.product, stationary.unit):
        if not hasattr(kernel, method.__name__):
            setattr(kernel, method.__name__, method)
    BY_NAME[kernel.name] = kernel
    own = getattr(kernel, "slope", None)
    FORMULAS[kernel.name] = Formula(kernel.profile, own, getattr(kernel, "steep", False), getattr(kernel, "norm", 2))
    return kernel


def factorising() -> tuple[str, ...]:
    """Names of the kernels that are products over their inputs: those that a grid can take."""
    return tuple(name for name, kernel in BY_NAME.items() if hasattr(kernel, "factor"))
