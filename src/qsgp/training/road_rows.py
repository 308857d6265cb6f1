"""Training by the dual: the GP's mean and posterior draws by blocks of rows, judged on rows held out.

It begins with the exact GP on some rows (`rows_start`) and visits all of them from there, block after block
(`rows_epochs`). A slice of rows is held out meanwhile. Its scores say when predictions have settled, and what is kept:
the result is never worse there than the exact GP it began with. In the last epoch these rows join. Posterior draws are
further columns of the same system (`pathwise`); after a third of the time the mean goes on alone, whose epochs take
little more than half as long. Sites that are not Gaussian are tightened as their rows are visited (`row_sites`).
"""

import math
import time
import warnings
from dataclasses import dataclass, field, replace

from sklearn.exceptions import ConvergenceWarning

from qsgp.interfaces import Kernel, Likelihood
from qsgp.posteriors.posteriors import KernelFunctionsAtRows
from qsgp.training import rows_saved
from qsgp.training.rows_epochs import LIMITS, Limits, epoch, finished, joined
from qsgp.training.rows_given import MOST_UNSEEN, Given, timed
from qsgp.training.rows_start import (
    Exact,
    exact_of_all_rows,
    exact_of_first_rows,
    with_affordable_rows,
    worth_epochs,
)
from qsgp.training.rows_state import State, init
from qsgp.training.store import storing
from qsgp.training.task import Task
from qsgp.training.trained import Record, Report, Trained, Unseen


def train(task: Task, kernel: Kernel, likelihood: Likelihood, limits: Limits = LIMITS) -> Trained:
    """The exact GP on some rows, then epochs over all of them until held-out predictions settle or time is up.

    With a checkpoint folder the hyperparameters are stored first, and the state after epochs; a run that finds them
    there goes on from them.
    """
    if task.store is None and task.options.checkpoint is not None:
        with storing(task.rows, task.options, None, "epoch", task.ranks) as store:
            return train(replace(task, store=store), kernel, likelihood, limits)
    run = Run(task, (kernel, likelihood))
    state = run.resumed()
    if state is None:
        given = Given.of(run.task, kernel, likelihood)
        exact, stop = run.begin(given)
        if exact.n == given.n or task.ranks.agreed(stop or task.halt()):
            return run.without_epochs(given, exact)
        given = with_affordable_rows(run.task, given, exact)
        if not worth_epochs(given, exact):
            return run.without_epochs(given, exact)
        state = run.ready(given, exact)
    held = [state]
    del state  # of no use once epochs have begun, and its matrices are as large as the data
    state = run.epochs(held.pop(), limits)
    unseen = run.unseen(state.given, state.best, state.pace.watch)
    posterior = joined(run.task, state)
    if posterior is state.best and state.best_is_exact:
        warn_of_few(run.task, state.exact_rows, state)
    return Trained(posterior, run.history, state.iterations, unseen=unseen)


@dataclass
class Run:
    """The records of a run, told as they come, and its checkpoints."""

    task: Task
    learned: tuple[Kernel, Likelihood]
    history: list[Record] = field(default_factory=list)
    began: float = field(default_factory=time.perf_counter)

    def begin(self, given: Given) -> tuple[Exact, bool]:
        """The exact GP on some rows; and whether the report says to stop."""
        if self.task.store is not None and self.task.store.saved is None:  # the same on all ranks
            self.task.store.save(0, self.learned, {}, {})
        exact = exact_of_first_rows(self.task, given)
        self.note({"phase": "exact GP on some rows", "iteration": 0, "rows": exact.n}, exact.scores)
        return exact, self.reported(exact.posterior)

    def without_epochs(self, given: Given, exact: Exact) -> Trained:
        """The exact GP, on all rows where they fit into it."""
        posterior = exact.posterior
        unseen = self.unseen(given, posterior, exact.watch_seconds)
        if exact.n == given.n:
            posterior = exact_of_all_rows(self.task, given, exact)
        if posterior is exact.posterior:
            warn_of_few(self.task, exact.n)
        return Trained(posterior, self.history, 1, unseen=unseen)

    def unseen(self, given: Given, posterior: KernelFunctionsAtRows, watch: float) -> Unseen | None:
        """Rows that say what noise predictions have; as many as there is time for, ``watch`` seconds for those held
        out."""
        if self.task.options.noise == "equal" or not given.fixed:
            return None
        share = MOST_UNSEEN / max(given.held_out.n, 1)
        more = not timed(self.task) or self.task.halt.left > 2 * share * watch
        return given.unseen(posterior, self.task.ranks.agreed(more))

    def ready(self, given: Given, exact: Exact) -> State:
        """For the first epoch."""
        state, trials = init(self.task, given, exact)
        for number, trial in enumerate(trials):
            self.note({"phase": "lengthscales", "iteration": number + 1}, {"rmse": trial.rmse})
        return state

    def epochs(self, state: State, limits: Limits) -> State:
        """One after another, each stored when it is time."""
        stop = False
        while not (stop or finished(self.task, state, limits)):
            state, info = epoch(self.task, state, limits)
            if info is not None:
                self.note(*info)
            self.store(state)
            if info is not None:
                stop = self.reported(state.best)
                if self.task.halt.pressed.is_set():
                    warnings.warn(
                        f"Interrupted in epoch {state.epochs}: the model is fitted as far as that.", stacklevel=4
                    )
        self.store(state, now=True)
        return state

    def note(self, record: Record, scores: Record) -> None:
        self.history.append(record | {"seconds": time.perf_counter() - self.began} | scores)

    def reported(self, posterior: KernelFunctionsAtRows) -> bool:
        """Tell the last record; True ends the run."""
        report: Report | None = self.task.report
        return self.task.ranks.agreed(bool(report and report(self.history[-1], lambda: posterior)))

    def store(self, state: State, now: bool = False) -> None:
        """Not what an epoch cut short has left: who goes on repeats it from its beginning."""
        store, whole = self.task.store, state.residual is not None and math.isfinite(state.residual)
        wanted = store is not None and not (state.judged and not whole)
        if store is None or not self.task.ranks.agreed(wanted and store.wants(state.epochs, now)):
            return
        about, tensors = rows_saved.parts(state)
        header = {"history": self.history, "seconds": time.perf_counter() - self.began, "state": about}
        # what was chosen by the clock stays as it was
        store.save(state.epochs, self.learned, header | {"sizes": vars(self.task.sizes)}, tensors)

    def resumed(self) -> State | None:
        """The state of the last checkpoint, if there is one."""
        store = self.task.store
        if store is None or store.saved is None:
            return None
        self.learned = store.hyperparameters()
        header, tensors = store.saved
        if "state" not in header or not header["state"]["posterior"].get("tails"):
            return None  # or one of before, whose draws were others
        self.task = replace(self.task, sizes=replace(self.task.sizes, **header["sizes"]))
        self.history, self.began = header["history"], time.perf_counter() - header["seconds"]
        state = rows_saved.restored(self.task, self.learned, (header["state"], tensors))
        store.resumed(state.epochs)
        return state


def warn_of_few(task: Task, known: int, state: State | None = None) -> None:
    """The model is the exact GP on ``known`` rows: say so when most rows had no say."""
    given = task.rows.n
    if known >= given - task.sizes.held_out:
        return
    if state is not None and state.epochs:
        warnings.warn(
            f"Training on {state.given.n:,} rows predicts rows held out worse than the exact GP on {known:,} "
            "of them, so the model is that GP. Give it more time (max_time), or look for rows that contradict "
            "each other.",
            ConvergenceWarning,
            stacklevel=4,
        )
    elif not task.halt.pressed.is_set():
        warnings.warn(
            f"There was time for the exact GP on {known:,} of {given:,} rows. Fit again with more time "
            "to use all of them.",
            ConvergenceWarning,
            stacklevel=4,
        )
    else:
        warnings.warn(f"Interrupted: the model is the exact GP on {known:,} of {given:,} rows.", stacklevel=4)
