from collections import Counter
from math import comb

import pytest
import torch

from qsgp.paper.sampling import draw, sample, step_generator


@pytest.mark.parametrize(("population", "size"), [(7, 2), (6, 3), (5, 5), (9, 1)])
def test_every_subset_is_equally_likely(population, size):
    """Chi-square of all subsets, both branches of the sampler; the limit is 6 deviations above its mean."""
    generator = torch.Generator().manual_seed(1)
    repeats = 4000
    counts = Counter(tuple(sorted(sample(population, size, generator).tolist())) for _ in range(repeats))
    cells = comb(population, size)
    expected = repeats / cells
    observed = list(counts.values()) + [0] * (cells - len(counts))
    chi2 = sum((c - expected) ** 2 / expected for c in observed)
    assert chi2 <= (cells - 1) + 6 * (2 * max(cells - 1, 1)) ** 0.5


def test_draws_without_replacement_are_distinct_and_inside():
    generator = torch.Generator().manual_seed(0)
    for population, size in [(10**12, 1000), (1000, 400), (1000, 300), (5, 5)]:
        index = sample(population, size, generator)
        assert len(index) == size == len(index.unique())
        assert 0 <= index.min() and index.max() < population


def test_i_and_j_are_independent():
    """The overlap of independent sets of 300 out of 1,000 is hypergeometric: mean 90, deviation 6.6."""
    overlaps = []
    for t in range(200):
        batch = draw(10, 1000, 5, 300, step_generator(0, t))
        overlaps.append(2 * 300 - len(batch.touched))
    mean = sum(overlaps) / len(overlaps)
    assert abs(mean - 90) < 6 * 6.6 / len(overlaps) ** 0.5


@pytest.mark.parametrize("replacement", [False, True])
@pytest.mark.parametrize("m_tilde", [3, 8])
def test_batch_positions_and_shares(replacement, m_tilde):
    batch = draw(20, 8, 4, m_tilde, step_generator(3, 0), replacement=replacement, sets=3)
    assert torch.equal(batch.touched[batch.at], batch.drawn)
    share = batch.share(torch.float64)
    assert share.sum() == pytest.approx(len(batch.touched))
    parts = batch.split(batch.drawn)
    assert all(torch.equal(part, index) for part, index in zip(parts, batch.draws, strict=True))


def test_steps_are_reproducible_and_different():
    first, again, second = (draw(1000, 1000, 10, 10, step_generator(5, t)) for t in (0, 0, 1))
    assert torch.equal(first.drawn, again.drawn) and torch.equal(first.l, again.l)
    assert not torch.equal(first.drawn, second.drawn)


def test_too_large_samples_are_refused():
    with pytest.raises(ValueError, match="m_tilde <= m = 8, got m_tilde = 9"):
        draw(20, 8, 4, 9, step_generator(0, 0))
    with pytest.raises(ValueError, match="n_tilde <= n = 20, got n_tilde = 0"):
        draw(20, 8, 0, 4, step_generator(0, 0))
