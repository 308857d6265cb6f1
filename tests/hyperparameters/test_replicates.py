"""Rows with equal inputs tell the noise."""

import math

import pytest
import torch

from qsgp.data.rows import Rows
from qsgp.hyperparameters.asked import Asked
from qsgp.hyperparameters.replicates import Replicates, equal
from qsgp.hyperparameters.search import learn
from qsgp.hyperparameters.small_tables import Watch
from qsgp.likelihoods import Gaussian


def test_equal_rows_are_found_by_their_bits():
    x = torch.tensor([[1.0, 2.0], [2.0, 1.0], [1.0, 2.0], [0.0, 3.0], [-0.0, 3.0], [3.0, 3.0]])
    group = equal(x)
    assert group[0] == group[2] and group[3] == group[4]
    assert len(group.unique()) == 4
    whole = torch.cartesian_prod(torch.arange(60.0), torch.arange(60.0), torch.tensor([0.5, 0.25]))
    assert len(equal(whole).unique()) == len(whole)  # round numbers, whose low bits are 0


def test_what_equal_rows_say_is_the_density_of_their_differences():
    """Of groups of n_g rows, the likelihood less what it says of the means of groups (Gaussian, one output)."""
    generator = torch.Generator().manual_seed(0)
    x = torch.tensor([[0.0], [0.0], [1.0], [2.0], [2.0], [2.0]])
    Y, weight = torch.randn(6, 1, generator=generator).double(), torch.tensor([1.0, 2.0, 1.0, 1.0, 0.5, 3.0])
    found = Replicates.of(Rows(x, Y, weight))
    assert found.freedom == 3
    for noise in (1e-3, 1e-2):
        variance = noise / weight.double()
        together = torch.zeros(())
        for value in (0.0, 2.0):
            own = (x[:, 0] == value).nonzero()[:, 0]
            mean = (weight[own].double() @ Y[own, 0]) / weight[own].sum()
            density = -0.5 * (variance[own].log() + (Y[own, 0] - mean).square() / variance[own]).sum()
            together = together + density + 0.5 * (noise / weight[own].double().sum()).log()
        constant = 0.5 * (weight.double().log()[[0, 1, 3, 4, 5]].sum() - math.log(3) - math.log(4.5))
        assert found.log_density(Gaussian(torch.tensor(noise).double())) == pytest.approx(
            float(together - constant), rel=1e-6
        )


def test_they_raise_the_noise_and_never_lower_it():
    told = Replicates(100.0, 1.0)  # a noise of 0.01
    at = [float(told.log_density(Gaussian(torch.tensor(noise)))) for noise in (1e-4, 1e-3, 1e-2, 1e-1)]
    assert at[0] < at[1] < at[2] == at[3]
    assert Replicates(50.0, 0.0).log_density(Gaussian(torch.tensor(1e-3))) == 0.0  # copies
    assert told.lacking(Replicates(30.0, 5.0), 0.5) == Replicates(20.0, 0.2)
    assert told.lacking(Replicates(80.0, 5.0), 0.5).freedom == 0


def test_a_search_that_sees_few_equal_rows_is_told_of_the_others():
    """Noise 0.01, a rough function, every row twice: of 100 rows hardly any are equal, and alone they say 0.006."""
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(1800, 1, generator=generator).sort(0)[0]
    f = torch.randn(1800, 1, generator=generator).cumsum(0)
    x, f = torch.cat([x, x]), torch.cat([f, f])
    rows = Rows(x, (f - f.mean()) / f.std() + 0.1 * torch.randn(len(f), 1, generator=generator), torch.ones(len(f)))
    _, sites = learn(rows, Asked(kernels=("matern12",), most=100), Watch())
    assert float(sites.noise_variance) == pytest.approx(0.01, rel=0.15)
