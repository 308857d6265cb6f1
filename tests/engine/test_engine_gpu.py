"""What only a GPU can show: the hardware sine, more than 2^31 numbers, the memory of a large product, replay."""

import pytest
import torch
from test_engine import Problem, error, features, least_eigenvalue_of_the_error
from torch import Tensor

from qsgp.engine import Drawn, k_v, phi_v, phit_r

pytestmark = pytest.mark.gpu
CUDA = torch.device("cuda")
MANY = 2**24 + 5  # rows of 128 columns: more numbers than 32 bits can count


def unit(d: int) -> tuple[Tensor, Tensor]:
    return torch.ones(d, device=CUDA), torch.ones((), device=CUDA)


def last_only(rows: int, columns: int) -> Tensor:
    """Zero except the last row: a wrong address finds nothing."""
    weights = torch.zeros(rows, columns, device=CUDA)
    weights[-1] = torch.arange(1, columns + 1, device=CUDA)
    return weights


@pytest.mark.parametrize("largest", [3.0, 100.0, 1e4])
def test_the_hardware_sine(largest: float) -> None:
    """One input, one frequency: each feature by itself, no sum in which errors could hide."""
    x = torch.linspace(-largest, largest, 100_001, device=CUDA)[:, None]
    out = phi_v(x, torch.ones(1, 1, device=CUDA), torch.eye(2, device=CUDA)[:, :1].contiguous(), *unit(1))
    bound = 2e-6 + 2 * torch.finfo(torch.float32).eps * largest
    assert (out[:, 0].double() - x[:, 0].double().cos()).abs().max() < bound


def test_more_weights_than_32_bits_count() -> None:
    x, drawn = torch.randn(70, 3, device=CUDA), Drawn(seed=1, first=0, pairs=MANY // 2 + 1)
    V = last_only(2 * len(drawn), 128)
    t = x.double() @ drawn[len(drawn) - 1 :].numbers(3, CUDA)[0]
    truth = t.sin()[:, None] * V[-1].double() / len(drawn) ** 0.5
    assert error(phi_v(x, drawn, V, *unit(3)), truth) < 1e-5


def test_more_rows_than_32_bits_count() -> None:
    x, omega = torch.randn(MANY, 3, device=CUDA), torch.randn(20, 3, device=CUDA)
    R = last_only(MANY, 128)
    last = features(x[-1:].double(), omega.double(), *(value.double() for value in unit(3)))
    assert error(phit_r(x, omega, R, *unit(3)), last.mT @ R[-1:].double()) < 1e-5
    K = torch.exp(-0.5 * torch.cdist(omega.double(), x[-1:].double()).square())
    assert error(k_v(omega, x, R, *unit(3)), K @ R[-1:].double()) < 1e-5


def test_more_inputs_than_32_bits_count() -> None:
    n = 2**27 + 3
    x = torch.zeros(n, 16, device=CUDA)
    x[-1] = torch.randn(16, device=CUDA)
    p = Problem(1, 16, 5, 1, CUDA)
    last = features(x[-1:].double(), p.omega.double(), *(value.double() for value in unit(16)))
    out = phi_v(x, p.omega, p.V, *unit(16))
    assert error(out[-1:], last @ p.V.double()) < 1e-5


def test_a_large_product_takes_little_memory() -> None:
    x, drawn = torch.randn(65_536, 16, device=CUDA), Drawn(seed=1, first=0, pairs=500_000)
    V, R = torch.randn(1_000_000, 1, device=CUDA), torch.randn(65_536, 1, device=CUDA)
    for product, weights in ((phi_v, V), (phit_r, R)):
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        out = product(x, drawn, weights, *unit(16))
        assert torch.cuda.max_memory_allocated() - before - out.nbytes < 64 * 2**20


@pytest.mark.parametrize("columns", [1, 20])
def test_results_do_not_change_from_run_to_run(columns: int) -> None:
    p = Problem(5000, 7, 9000, columns, CUDA)
    for product, weights in ((phi_v, p.V), (phit_r, p.R)):
        first, second = (product(p.x, p.omega, weights, *p.kernel()) for _ in range(2))
        assert torch.equal(first, second)


def test_products_can_be_recorded_and_replayed() -> None:
    """No product waits for the device, so a CUDA graph can hold it; new inputs give new results."""
    p, other = Problem(300, 6, 500, 1, CUDA), Problem(300, 6, 500, 1, CUDA, seed=1)

    def run() -> list[Tensor]:
        out = phi_v(p.x, p.omega, p.V, *p.kernel())
        return [out, phit_r(p.x, p.omega, out, *p.kernel()), k_v(p.x, p.omega, p.V[:500], *p.kernel())]

    run()  # compiles
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        recorded = run()
    p.x.copy_(other.x)
    graph.replay()
    assert all(torch.equal(a, b) for a, b in zip(recorded, run(), strict=True))


def test_no_direction_of_many_rows_is_lost_from_distances() -> None:
    assert least_eigenvalue_of_the_error(lambda x, V: k_v(x, x, V, *unit(2)), 3_000, CUDA) > -4e-9
