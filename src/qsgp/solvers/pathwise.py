"""Posterior functions by sample-then-optimise: a draw of the prior less what the rows know of it (Matheron's rule).

f_s(x) = k(x, X) alpha + g_s(x) with g_s(x) = p_s(x) - k(x, X) Z_s, p_s a function of the prior and
Z_s = (K + D)^-1 (p_s(X) + e_s), e_s ~ N(0, D). The mean of g_s(x)^2 is the exact GP's variance, and the columns Z_s are
further right-hand sides of the system that gives the mean: they share its kernel values.
"""

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from qsgp import engine
from qsgp.engine.counter_rng import normals
from qsgp.interfaces import SpectralKernel
from qsgp.kernels.tails import CAUCHY, heavy_frequencies

_PAIRS = 512  # of a draw
_EFFECTS = 16  # streams of random numbers from here on are those of identifiers
_ALIKE = 0.01  # least variance of log quotients: support points count for 200 draws at most


def prior_draws(
    kernel: SpectralKernel, x: Float[Tensor, "l d"], count: int, seed: int, pairs: int = _PAIRS, tails: bool = True
) -> Float[Tensor, "l count"]:
    """Functions of the prior at ``x``, the same functions for the same seed whatever ``x`` is.

    Each has Fourier features of its own, so that the mean of p_s(x) p_s(z) over draws is the kernel exactly however few
    features a draw has. With ``tails`` more of them are of high frequency than the kernel has, and count less
    (`heavy_frequencies`). Cost: 2 ``pairs`` features for every row and draw.
    """
    w = normals(seed, torch.arange(2 * pairs, device=x.device), count, stream=1)
    draws = []
    for s in range(count):
        frequencies, weight = _frequencies(kernel, seed, s * pairs, pairs, tails)
        own = w[:, s] if weight is None else w[:, s] * weight.sqrt().repeat_interleave(2)
        draws.append(engine.phi_v(x, frequencies, own[:, None].to(x), kernel.lengthscale, kernel.variance))
    return torch.cat(draws, 1) if draws else x.new_zeros(len(x), 0)


def _frequencies(
    kernel: SpectralKernel, seed: int, first: int, pairs: int, tails: bool
) -> tuple[engine.Frequencies, Float64[Tensor, " p"] | None]:
    """Of one draw, and their weights unless all of them are 1."""
    if not tails or kernel.degrees in (0, CAUCHY):
        return engine.drawn(kernel, seed, first, pairs), None
    return heavy_frequencies(kernel, seed, torch.arange(first, first + pairs, device=kernel.lengthscale.device))


def effect_draws(
    codes: Int[Tensor, "l q"], variances: Float[Tensor, "q levels"], count: int, seed: int, unknown: bool = True
) -> Float64[Tensor, "l count"]:
    """Sums over identifiers of a normal of each level, the same for the same seed in whatever rows; their variances are
    in tables, that of unknown levels in the last place, which have one for each row, or none unless ``unknown``."""
    total = torch.zeros(len(codes), count, dtype=torch.float64, device=codes.device)
    last = variances.shape[1] - 1
    generator = torch.Generator().manual_seed(seed)
    for j, (code, variance) in enumerate(zip(codes.mT, variances.double(), strict=True)):
        levels, at = torch.unique(code, return_inverse=True)
        known = (levels >= 0) & (levels < last)
        own = normals(seed, levels.clamp_min(0), count, stream=_EFFECTS + j)
        own = (own * variance[torch.where(known, levels, last), None].sqrt())[at]
        alone = torch.randn(len(codes), count, generator=generator, dtype=torch.float64).to(own.device)
        total += torch.where(levels[at, None] >= 0, own, alone * variance[-1].sqrt() * unknown)
    return total


def prior_tables(
    kernel: SpectralKernel, count: int, seed: int, tails: bool = True, pairs: int = _PAIRS
) -> tuple[Float64[Tensor, "d s p"], Float64[Tensor, "s p 2"]]:
    """The same functions as tables, for serving: sum over p of w_0 cos(x^T omega_p) + w_1 sin(x^T omega_p)."""
    device = kernel.lengthscale.device
    index = torch.arange(count * pairs, device=device)
    weight = torch.ones(len(index), dtype=torch.float64, device=device)
    if tails:
        frequencies, weight = heavy_frequencies(kernel, seed, index)
    else:
        frequencies = kernel.frequencies(seed, index)
    omega = frequencies / kernel.lengthscale.double()
    w = normals(seed, torch.arange(2 * pairs, device=device), count, stream=1)
    scaled = (kernel.variance.double() / pairs).sqrt() * w.mT.unflatten(1, (pairs, 2))
    return omega.mT.unflatten(1, (count, pairs)).contiguous(), scaled * weight.sqrt().view(count, pairs, 1)


def noise_draws(n: int, count: int, seed: int, like: Tensor) -> Float[Tensor, "n count"]:
    """Standard normal noise of the rows; it is not needed again once the system is solved."""
    generator = torch.Generator(like.device).manual_seed(seed)
    return torch.randn(n, count, generator=generator, dtype=like.dtype, device=like.device)


def fit_blend(spread: Float[Tensor, "h g s"], support: Float[Tensor, "h g"]) -> Float[Tensor, "g two"]:
    """How far the variance of the support points may be trusted beside that of ``s`` draws: (ratio, worth in draws).

    The variance of few draws is unbiased but noisy, that of the support points smooth but too large, at some rows more
    than at others. Let the true quotient of a row be inverse gamma with ``scale`` and ``freedom`` (Smyth, "Linear
    models and empirical Bayes methods", 2004): q = mean g_s^2 / support at rows of their own tells both by the mean and
    the variance of log q, which a few rows with large q do not rule. `blended` is the posterior mean of the variance.
    """
    half = torch.tensor(spread.shape[2] / 2, dtype=torch.float64, device=spread.device)
    log_q = (spread.double().square().mean(2) / support.double()).clamp_min(1e-30).log()
    level = log_q.mean(0) - torch.digamma(half) + half.log()
    differs = log_q.var(0, correction=0) - torch.special.polygamma(1, half)  # beyond what the noise of draws explains
    freedom = 2 * _inverse_trigamma(differs.clamp_min(_ALIKE))
    scale = torch.exp(level + torch.digamma(freedom / 2) - (freedom / 2).log())
    worth = (freedom - 2).clamp_min(0.1)  # a mean exists beyond 2
    return torch.stack((freedom * scale / worth, worth), 1)


def _inverse_trigamma(value: Float64[Tensor, " g"]) -> Float64[Tensor, " g"]:
    """By halving; trigamma falls from infinity to 0."""
    low, high = torch.full_like(value, 1e-3), torch.full_like(value, 1e4)
    for _ in range(60):
        middle = (low * high).sqrt()
        above = torch.special.polygamma(1, middle) > value
        low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    return high


def blended(
    spread: Float[Tensor, "t g s"], support: Float[Tensor, "t g"], blend: Float[Tensor, "g two"]
) -> Float[Tensor, "t g"]:
    """The variance at new inputs from draws and support points; with no draws that of the support points."""
    s, (ratio, worth) = spread.shape[2], blend.to(support).unbind(1)
    if not s:
        return support
    return (spread.to(support).square().sum(2) + worth * ratio * support) / (s + worth)
