"""Independent index sets for one step, in time and memory that do not grow with n or m."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from qsgp.checks import check_sample_size
from qsgp.paper.log_determinant import Looked

_ODD = 0x9E3779B97F4A7C15  # golden-ratio multiplier: consecutive steps get unrelated generator seeds


@dataclass(frozen=True)
class Batch:
    """One draw: l points; i, j (and r) basis functions, mutually independent.

    ``drawn`` is i, j, r one after the other, the order in which features are evaluated. ``touched`` are its
    distinct values; ``at`` says where each drawn function sits in them. ``dense`` are the dense columns of C that
    Theorem 2 takes, independent of the rest; None: all of them. ``looked`` are rows of a dense S, for its
    log-determinant.
    """

    l: Int[Tensor, " l"]
    draws: tuple[Int[Tensor, " _"], ...]
    drawn: Int[Tensor, " drawn"]
    touched: Int[Tensor, " touched"]
    at: Int[Tensor, " drawn"]
    repeats: Int[Tensor, " touched"]
    dense: Int[Tensor, " r"] | None = None
    looked: Looked | None = None

    def share(self, dtype: torch.dtype) -> Float[Tensor, " drawn"]:
        """1 / (times the function was drawn): sums over ``drawn`` weighted so are sums over ``touched``."""
        return 1 / self.repeats[self.at].to(dtype)

    def somewhere(self) -> Int[Tensor, " touched"]:
        """For each touched function a position among the drawn ones."""
        found = torch.empty_like(self.touched)
        found[self.at] = torch.arange(len(self.at), device=self.at.device)
        return found

    def split(self, drawn: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
        """Cut what was computed for ``drawn`` into the parts of i, j (and r)."""
        if len(self.drawn) == len(self.draws[0]):  # the full batch: i, j and r are the same, evaluated once
            return (drawn,) * len(self.draws)
        return torch.split(drawn, [len(part) for part in self.draws], dim)


def step_generator(seed: int, t: int, device: torch.device | str = "cpu") -> torch.Generator:
    """The generator of step t: a function of (seed, t), so a resumed run draws what the undisturbed one drew."""
    return torch.Generator(device).manual_seed((seed + (t + 1) * _ODD) % 2**63)


def sample(population: int, size: int, generator: torch.Generator, replacement: bool = False) -> Int[Tensor, " size"]:
    """``size`` uniform indices below ``population``, without replacement unless said, in O(size)."""
    device = generator.device
    if replacement:
        return torch.randint(population, (size,), generator=generator, device=device)
    check_sample_size("size", size, "population", population)
    if size == population:
        return torch.arange(population, device=device)
    if 3 * size > population:
        return torch.randperm(population, generator=generator, device=device)[:size]
    # Draw until there are enough distinct values, then keep a random part of them. No value is treated unlike
    # another, so every subset is equally likely; torch.randperm(population) would cost O(population).
    distinct = torch.randint(population, (size,), generator=generator, device=device).unique()
    while len(distinct) < size:
        more = torch.randint(population, (size,), generator=generator, device=device)
        distinct = torch.cat([distinct, more]).unique()
    return distinct[torch.randperm(len(distinct), generator=generator, device=device)[:size]]


def draw(
    n: int,
    m: int,
    n_tilde: int,
    m_tilde: int,
    generator: torch.Generator,
    *,
    replacement: bool = False,
    sets: int = 2,
) -> Batch:
    """l, and ``sets`` independent draws of basis functions (i, j and, for three, r)."""
    check_sample_size("n_tilde", n_tilde, "n", max(n, n_tilde) if replacement else n)
    check_sample_size("m_tilde", m_tilde, "m", max(m, m_tilde) if replacement else m)
    l = sample(n, n_tilde, generator, replacement)
    draws = tuple(sample(m, m_tilde, generator, replacement) for _ in range(sets))
    full = m_tilde == m and not replacement
    drawn = draws[0] if full else torch.cat(draws)
    if full:
        touched, at, repeats = drawn, drawn, torch.ones_like(drawn)
    else:
        touched, at, repeats = torch.unique(drawn, return_inverse=True, return_counts=True)
    return Batch(l, draws, drawn, touched, at, repeats)
