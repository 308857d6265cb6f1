"""Training by the paper's steps, how far it is, and the same steps where nothing is sampled."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from qsgp.paper import Fit, Problem, Settings, fit, start
from qsgp.paper.optimisers import adagrad, decayed
from qsgp.reproduce.experiment import Choice, Row
from qsgp.reproduce.unfinished import Unfinished

OFTEN = 20.0  # seconds between two words on how far training is
KEPT = {"cpu": 1 << 28, "cuda": 1 << 31}  # numbers of Phi that are read in every step where nothing is sampled


def trained(problem: Problem, settings: Settings, choice: Choice) -> Fit:
    """The one place where a model of the paper is trained. Ctrl-C ends it: half a run must not become a row. What it
    has learned is kept in the folder of ``choice`` and gone on with; the seconds of before count."""
    told, began = NowAndThen(choice.say), time.perf_counter()
    run = Fit(start(problem, settings))
    run.seconds = time.perf_counter() - began  # of the look at all functions
    kept = Unfinished.of(choice.unfinished, problem, settings)
    if kept.restore(run):
        choice.say(f"  goes on after {run.state.t} of {settings.iterations} steps")
    run = fit(
        problem,
        settings,
        past=run,
        report=lambda record: told(int(record["iteration"]), settings.iterations),
        save=kept.save,
    )
    if run.interrupted:
        raise KeyboardInterrupt
    kept.remove()
    return run


@dataclass
class NowAndThen:
    """Says how many steps are done, every `OFTEN` seconds."""

    say: Callable[[str], object]
    began: float = field(default_factory=time.monotonic)
    last: float = field(default_factory=time.monotonic)

    def __call__(self, done: int, of: int) -> None:
        now = time.monotonic()
        if now - self.last > OFTEN:
            self.last = now
            self.say(f"  {done} of {of} steps in {now - self.began:.0f} s")


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
    told = NowAndThen(say)
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
