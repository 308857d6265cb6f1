"""Training by the paper's steps, how far it is, and the same steps where nothing is sampled."""

import time
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from qsgp.paper import Fit, Problem, Settings, fit
from qsgp.paper.optimisers import adagrad, decayed
from qsgp.reproduce.experiment import Row

OFTEN = 20.0  # seconds between two words on how far training is
KEPT = {"cpu": 1 << 28, "cuda": 1 << 31}  # numbers of Phi that are read in every step where nothing is sampled


def trained(problem: Problem, settings: Settings, say: Callable[[str], object]) -> Fit:
    """The one place where a model of the paper is trained. Ctrl-C ends it: half a run must not become a row."""
    told = now_and_then(say)
    found = fit(problem, settings, report=lambda record: told(int(record["iteration"]), settings.iterations))
    if found.interrupted:
        raise KeyboardInterrupt
    return found


def now_and_then(say: Callable[[str], object]) -> Callable[[int, int], None]:
    """What says how many steps are done, every `OFTEN` seconds."""
    began = last = time.monotonic()

    def told(done: int, of: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last > OFTEN:
            last = now
            say(f"  {done} of {of} steps in {now - began:.0f} s")

    return told


@torch.no_grad()
def unsampled(
    Phi: Float[Tensor, "n m"],
    S_is_Phi: bool,
    y: Float[Tensor, " n"],
    sigma2: Float[Tensor, ""],
    settings: Settings,
    say: Callable[[str], object],
) -> Float[Tensor, " m"]:
    """mu by the steps of AdaGrad that training takes, each with the gradient of all rows and functions: what is wrong
    with it is the optimiser's. S is Phi or the identity. O(n m) a step."""
    told = now_and_then(say)
    mu, sums = Phi.new_zeros(Phi.shape[1], 1), Phi.new_zeros(Phi.shape[1], 1)
    for t in range(settings.iterations):
        f = Phi @ mu
        gradient = Phi.mT @ (f - y[:, None]) / sigma2 + (f if S_is_Phi else mu)
        mu, sums = adagrad(mu, sums, gradient, decayed(settings.rate, t, settings.iterations, settings.final))
        told(t + 1, settings.iterations)
    return mu[:, 0]


def stored_features(n: int, m: int, device: str) -> Row:
    """Empty where n times m numbers may be stored, else a row that says why not."""
    largest = KEPT[torch.device(device).type]
    return {} if n * m <= largest else {"note": f"{n} rows of {m} functions are more than {largest} numbers"}


def uninterrupted(measure: Callable[[], Row]) -> Callable[[], Row]:
    """A run that diverges is a result too: its row says so."""

    def measured() -> Row:
        try:
            return measure()
        except FloatingPointError as error:
            return {"note": str(error)}

    return measured
