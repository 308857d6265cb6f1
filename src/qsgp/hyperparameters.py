"""Initial hyperparameters: empirical Bayes with an exact GP on a random subset (Appendix I.1)."""

from typing import TypeVar, cast

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import minimize
from torch import Tensor

from qsgp import dense
from qsgp.checks import check_finite, check_rows
from qsgp.interfaces import Kernel

K = TypeVar("K", bound=Kernel)

_LOG_RANGE = (-12.0, 9.0)  # keeps the search away from overflow; wide beside standardised data
_LOG_NOISE_FLOOR = -13.8  # 1e-6 of a standardised target's variance


def fit_exact_gp(
    kernel: K,
    x: Float[Tensor, "n d"],
    y: Float[Tensor, " n"],
    *,
    noise_variance: float = 0.1,
    points: int = 1000,
    iterations: int = 100,
    seed: int = 0,
) -> tuple[K, Float[Tensor, ""]]:
    """Kernel and noise variance that maximise the marginal likelihood of at most ``points`` random rows.

    L-BFGS in float64 from the kernel given; cost O(points^3) for each of about ``iterations`` evaluations.
    """
    check_rows(x=x, y=y)
    check_finite("x", x, "Drop or fill the rows with missing values.")
    check_finite("y", y, "Drop the rows whose target is missing.")
    generator = torch.Generator().manual_seed(seed)
    subset = torch.randperm(len(x), generator=generator)[:points].to(x.device)
    x64, y64 = x[subset].double(), y[subset].double()
    names = list(kernel.parameters())
    first = [kernel.parameters()[name].detach().double() for name in names]
    first.append(torch.tensor(np.log(noise_variance), dtype=torch.float64, device=x.device))
    sizes = [value.numel() for value in first]

    def unpack(flat: Tensor) -> tuple[K, Tensor]:
        *values, log_noise = (part.reshape(v.shape) for part, v in zip(flat.split(sizes), first, strict=True))
        return cast(K, kernel.with_parameters(dict(zip(names, values, strict=True)))), log_noise.exp()

    def negative_evidence(point: np.ndarray) -> tuple[float, np.ndarray]:
        flat = torch.tensor(point, device=x.device, requires_grad=True)
        at_point, sigma2 = unpack(flat)
        Gram = at_point(x64, x64)
        # Duplicates and tiny noise can leave it indefinite to rounding; 1e-8 of its scale is below any noise of note.
        Gram = Gram + 1e-8 * Gram.diagonal().mean().detach() * torch.eye(len(Gram)).to(Gram)
        try:
            loss = -dense.log_marginal_likelihood(Gram, y64, sigma2) / len(y64)
        except RuntimeError:  # LinAlgError, which torch does not export by name to type checkers
            return 1e10, np.zeros_like(point)
        (gradient,) = torch.autograd.grad(loss, flat)
        return float(loss.detach()), gradient.cpu().numpy()

    start = torch.cat([value.reshape(-1) for value in first]).cpu().numpy()
    limits = [_LOG_RANGE] * (len(start) - 1) + [(_LOG_NOISE_FLOOR, _LOG_RANGE[1])]
    found = minimize(
        negative_evidence, start, jac=True, method="L-BFGS-B", bounds=limits, options={"maxiter": iterations}
    )
    best, sigma2 = unpack(torch.tensor(found.x, device=x.device).to(x.dtype))
    return best, sigma2.detach()
