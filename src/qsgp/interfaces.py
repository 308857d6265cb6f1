"""The protocols that the families implement: what a step, a prediction and the tests may ask for.

Shapes: n data points, m basis functions, d inputs; ``l`` sampled points, ``i`` and ``j`` sampled columns.
Parameters travel as dictionaries of unconstrained (log-scale) tensors, so that one Adam update serves
kernels and likelihoods alike; ``with_parameters`` returns a copy that is differentiable in them.
"""

from typing import Any, NamedTuple, Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

Parameters = dict[str, Tensor]


@runtime_checkable
class Kernel(Protocol):
    """A positive definite function k(x, z)."""

    def __call__(self, x: Float[Tensor, "a d"], z: Float[Tensor, "b d"]) -> Float[Tensor, "a b"]: ...

    def diag(self, x: Float[Tensor, "a d"]) -> Float[Tensor, " a"]: ...

    def parameters(self) -> Parameters: ...

    def with_parameters(self, parameters: Parameters) -> "Kernel": ...


@runtime_checkable
class SpectralKernel(Kernel, Protocol):
    """A stationary kernel whose spectral density can be sampled: variance * rho(|(x - z) / lengthscale|), or one made
    of such kernels."""

    @property
    def lengthscale(self) -> Float[Tensor, " d"]: ...

    @property
    def variance(self) -> Float[Tensor, ""]: ...

    @property
    def name(self) -> str:
        """What keywords, model files and the engine call it."""
        ...

    @property
    def degrees(self) -> int | None:
        """Degrees of freedom of the Student t that frequencies follow; 0 when they are normal, None when they have
        another law."""
        ...

    def frequencies(self, seed: int, index: Int[Tensor, " p"]) -> Float[Tensor, "p d"]:
        """Unit-lengthscale frequencies number ``index``: float64, a function of (seed, index) alone."""
        ...

    def product(
        self, x: Float[Tensor, "a d"], z: Float[Tensor, "b d"], V: Float[Tensor, "b c"]
    ) -> Float[Tensor, "a c"]:
        """k(x, z) V, without storing k(x, z) where the engine knows the kernel."""
        ...

    def unit(self) -> "SpectralKernel":
        """The kernel divided by its variance."""
        ...


@runtime_checkable
class Basis(Protocol):
    """m basis functions phi_1 .. phi_m and the prior precision S of their weights.

    ``columns`` holds what the functions number ``index`` need apart from hyperparameters (frequencies,
    centres, grid positions), so a step looks it up once and evaluates it at several inputs and kernels.
    """

    @property
    def m(self) -> int: ...

    @property
    def kernel(self) -> Kernel: ...

    @property
    def diagonal(self) -> bool:
        """S is diagonal."""
        ...

    @property
    def learned_precision(self) -> bool:
        """S = diag(s) is learned, one s for each function, and lives in the training state."""
        ...

    @property
    def exchangeable(self) -> bool:
        """No function differs in kind from another: a contiguous block is as good a sample as a scattered one."""
        ...

    def columns(self, index: Int[Tensor, " i"]) -> Any: ...

    def features(self, x: Float[Tensor, "l d"], columns: Any) -> Float[Tensor, "l i"]: ...

    def precision_diag(self, index: Int[Tensor, " i"]) -> Float[Tensor, " i"]:
        """The diagonal of S (the initial one when it is learned)."""
        ...


@runtime_checkable
class DensePriorBasis(Basis, Protocol):
    """A basis whose S is dense: Theorems 1 and 2 then need sampled blocks of it."""

    def precision(self, columns_j: Any, columns_i: Any) -> Float[Tensor, "j i"]:
        """The block S_ji."""
        ...


@runtime_checkable
class Streamed(Protocol):
    """A basis that multiplies its functions with columns without storing any of them."""

    def phi_v(self, x: Float[Tensor, "l d"], V: Float[Tensor, "i c"], first: int = 0) -> Float[Tensor, "l c"]:
        """Phi V over the functions from ``first`` on, as many as V has rows."""
        ...

    def phi2_v(self, x: Float[Tensor, "l d"], w: Float[Tensor, " i"]) -> Float[Tensor, " l"]:
        """sum_i phi_i(x)^2 w_i over all functions, w >= 0."""
        ...


@runtime_checkable
class Degenerate(Protocol):
    """A basis whose functions vanish far from their centres: its prior lacks a part of the kernel's there."""

    def missing(self, x: Float[Tensor, "t d"]) -> Float[Tensor, " t"]:
        """k(x, x) - phi(x) S^-1 phi(x)^T: the prior variance that the functions lack."""
        ...

    def projected(self, prior: Any, weights: Float[Tensor, "p c"]) -> Float[Tensor, "m c"]:
        """Weights of the functions for what they hold of a function of the prior, Fourier features times ``weights``:
        the two differ by a draw of the missing part."""
        ...


class Quadratic(NamedTuple):
    """constant + linear f + quadratic f^2 <= log g(f): a lower bound of one site, touching at two points."""

    constant: Tensor
    linear: Tensor
    quadratic: Tensor


@runtime_checkable
class Likelihood(Protocol):
    """Site g_l(f) = Pr(y_l | f), log-concave in f (Section 3)."""

    @property
    def labels(self) -> bool:
        """Targets are labels -1 and +1, not numbers."""
        ...

    @property
    def fixed_sites(self) -> bool:
        """log g is itself quadratic in f, equally curved for all targets: its bounds are exact wherever they touch."""
        ...

    @property
    def noise_variance(self) -> Tensor | None:
        """The variance of y about f, in the units of the targets; None for labels."""
        ...

    def parameters(self) -> Parameters: ...

    def with_parameters(self, parameters: Parameters) -> "Likelihood": ...

    def check_targets(self, y: Tensor) -> None:
        """Raise if ``y`` holds what this likelihood cannot explain."""
        ...

    def log_site(self, y: Tensor, f: Tensor) -> Tensor: ...

    def expected_log_site(self, y: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
        """h(a, s) = E_z log g(a + z s), z ~ N(0, 1): even in ``deviation``, which may be negative."""
        ...

    def quadratic_bound(self, y: Tensor, xi: Tensor) -> Quadratic:
        """Bound (Q): the quadratic minorant that touches log g at distance ``xi`` from its centre."""
        ...

    def optimal_xi(self, y: Tensor, mean: Tensor, second_moment: Tensor) -> Tensor:
        """The tightest xi for given E f and E f^2, which must not come from the current draw."""
        ...

    def log_density(self, y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """log E_f g(y | f) for f ~ N(mean, variance): what MNLP averages."""
        ...

    def moments(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of y (for classes: of the label 1 against 0) for f ~ N(mean, variance)."""
        ...

    def quantile(self, q: float | Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """The q-quantile of y (for classes: of the probability of label 1) for f ~ N(mean, variance)."""
        ...


@runtime_checkable
class Numeric(Likelihood, Protocol):
    """A likelihood of numbers: noise of some variance about f."""

    @classmethod
    def of_noise(cls, variance: Tensor) -> "Numeric":
        """The one whose noise has this variance."""
        ...

    def cdf(self, y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """Pr(below y) for f ~ N(mean, variance)."""
        ...

    def crps(self, y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """The continuous ranked probability score of y for f ~ N(mean, variance)."""
        ...


@runtime_checkable
class OwnParabola(Protocol):
    """A likelihood with a better quadratic stand-in for a site than the one its bound gives."""

    def parabola(self, y: Tensor, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """c1 and lambda of c1 f - lambda f^2 / 2, which stands in for log g about f ~ N(mean, variance)."""
        ...


@runtime_checkable
class Source(Protocol):
    """Where rows come from. ``take`` keeps order and repeats of ``index``."""

    @property
    def n(self) -> int: ...

    @property
    def d(self) -> int: ...

    @property
    def outputs(self) -> int:
        """Targets for each point: 1 when y is a vector."""
        ...

    def take(self, index: Int[Tensor, " l"]) -> tuple[Float[Tensor, "l d"], Float[Tensor, "l *o"]]: ...

    @property
    def total(self) -> float:
        """How often all points count together: n, or the sum of the weights."""
        ...

    def weights(self, index: Int[Tensor, " l"]) -> Float[Tensor, " l"] | None:
        """How often each point counts; None when all count once."""
        ...
