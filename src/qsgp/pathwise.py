"""Posterior functions by sample-then-optimise: a draw of the prior less what the rows know of it (Matheron's rule).

f_s(x) = k(x, X) alpha + g_s(x) with g_s(x) = p_s(x) - k(x, X) Z_s, p_s a function of the prior and
Z_s = (K + D)^-1 (p_s(X) + e_s), e_s ~ N(0, D). The mean of g_s(x)^2 is the exact GP's variance, and the columns Z_s are
further right-hand sides of the system that gives the mean: they share its kernel values.
"""

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from qsgp import engine
from qsgp.counter_rng import normals
from qsgp.interfaces import SpectralKernel

_PAIRS = 512  # of a draw


def prior_draws(
    kernel: SpectralKernel, x: Float[Tensor, "l d"], count: int, seed: int, pairs: int = _PAIRS
) -> Float[Tensor, "l count"]:
    """Functions of the prior at ``x``, the same functions for the same seed whatever ``x`` is.

    Each has Fourier features of its own, so that the mean of p_s(x) p_s(z) over draws is the kernel exactly however few
    features a draw has. Cost: 2 ``pairs`` features for every row and draw.
    """
    w = normals(seed, torch.arange(2 * pairs, device=x.device), count, stream=1).to(x)
    draws = [
        engine.phi_v(
            x,
            engine.Drawn(seed, s * pairs, pairs, kernel.degrees),
            w[:, s : s + 1].contiguous(),
            kernel.lengthscale,
            kernel.variance,
        )
        for s in range(count)
    ]
    return torch.cat(draws, 1) if draws else x.new_zeros(len(x), 0)


def prior_tables(
    kernel: SpectralKernel, count: int, seed: int, pairs: int = _PAIRS
) -> tuple[Float64[Tensor, "d s p"], Float64[Tensor, "s p 2"]]:
    """The same functions as tables, for serving: sum over p of w_0 cos(x^T omega_p) + w_1 sin(x^T omega_p)."""
    device = kernel.lengthscale.device
    omega = kernel.frequencies(seed, torch.arange(count * pairs, device=device)) / kernel.lengthscale.double()
    w = normals(seed, torch.arange(2 * pairs, device=device), count, stream=1)
    scaled = (kernel.variance.double() / pairs).sqrt() * w
    return omega.mT.unflatten(1, (count, pairs)).contiguous(), scaled.mT.unflatten(1, (pairs, 2)).contiguous()


def noise_draws(n: int, count: int, seed: int, like: Tensor) -> Float[Tensor, "n count"]:
    """Standard normal noise of the rows; it is not needed again once the system is solved."""
    generator = torch.Generator(like.device).manual_seed(seed)
    return torch.randn(n, count, generator=generator, dtype=like.dtype, device=like.device)


def fit_blend(spread: Float[Tensor, "h g s"], support: Float[Tensor, "h g"]) -> Float[Tensor, "g two"]:
    """How far the variance of the support points may be trusted beside that of ``s`` draws: (ratio, worth in draws).

    The variance of few draws is unbiased but noisy (relative variance 2 / s), that of the support points smooth but too
    large. With q = mean g_s^2 / support at rows of their own: E q = ratio, E q^2 = E r^2 (1 + 2 / s) for the
    true quotient r, and rho = E r^2 / ratio^2 - 1 is how much r differs from row to row. The best linear blend of the
    two then counts ``ratio * support`` like 2 (1 + rho) / rho draws.
    """
    s = spread.shape[2]
    q = spread.double().square().mean(2) / support.double()
    ratio = q.mean(0)
    rho = (q.square().mean(0) / (1 + 2 / s) / ratio.square() - 1).clamp(0.01, 10.0)
    return torch.stack((ratio, 2 * (1 + rho) / rho), 1)


def blended(
    spread: Float[Tensor, "t g s"], support: Float[Tensor, "t g"], blend: Float[Tensor, "g two"]
) -> Float[Tensor, "t g"]:
    """The variance at new inputs from draws and support points; with no draws that of the support points."""
    s, (ratio, worth) = spread.shape[2], blend.to(support).unbind(1)
    if not s:
        return support
    return (spread.to(support).square().sum(2) + worth * ratio * support) / (s + worth)
