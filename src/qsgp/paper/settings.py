"""How to train: all that is not the problem itself."""

from dataclasses import dataclass
from typing import Literal, get_args

from qsgp.checks import check_choice, check_positive

Control = Literal["none", "gram", "kriging"]
Draws = Literal["scattered", "blocks"]
Bound = Literal["A", "B", "Q", "printed"]
MeanUpdate = Literal["adagrad", "newton", "implicit"]
CovarianceUpdate = Literal["row", "entry"]


@dataclass(frozen=True)
class Settings:
    """How to train; the defaults of rate, hyper_rate and frozen are the paper's (Appendix I.1).

    ``control="gram"`` is for Gaussian noise; sites know kriging or none. ``mean_update="newton"`` solves for the block
    of mu that was drawn, a full step at first, decaying like the rates. With m_tilde < m it can diverge: it is safe
    only where kriging from many support points leaves the sampled gradient almost no noise. ``mean_update="implicit"``
    solves for a block of mu and of the dense columns of C at once (`implicit.implicit_step`); ``rate`` is then the part
    of a Newton step that is taken of what the data determine.

    ``covariance_update="row"`` moves a row of L by at most ``covariance_rate`` in the unit of its own c_rr, all its
    entries in proportion to their gradients. ``"entry"`` is the paper's AdaGrad: every entry by ``rate`` at first,
    which spoils a covariance whose entries are smaller than that. ``r_tilde`` is the third draw of Theorem 2.

    ``learned=("lengthscale", "variance", "noise")`` names hyperparameters: "noise" is all that the likelihood has,
    "kernel" all of the kernel, "kernel.log_variance" exactly one.

    ``bound="printed"`` is Theorem 3 as it stands, with a variance where the deviation belongs: no bound, and here only
    so that it can be compared with those that are.

    ``draws="blocks"`` takes neighbouring Fourier features instead of scattered ones and streams them through the engine
    (`block_training`): faster on a CPU, one replayed graph on a GPU.
    """

    n_tilde: int = 500
    m_tilde: int = 500
    r_tilde: int | None = None  # dense columns of C that a step reads; None: all of them
    iterations: int = 10_000
    rate: float = 0.1
    hyper_rate: float = 1e-5
    final: float = 0.01  # all rates decay exponentially to this part of themselves
    frozen: float = 0.1  # part of the iterations before hyperparameters move
    learn_hyperparameters: bool = False
    determinant_rows: int = 0  # rows of a dense S for its log-determinant; hyperparameters of such a basis need some
    learned: tuple[str, ...] | None = None  # which hyperparameters, by words (`learns`); None: all
    mean_update: MeanUpdate = "adagrad"
    covariance_update: CovarianceUpdate = "row"
    covariance_rate: float = 0.3  # of L below its diagonal, for "row"; decays as the others do
    control: Control = "gram"
    bound: Bound = "B"
    draws: Draws = "scattered"
    replacement: bool = False
    seed: int = 0
    every: int = 100  # steps to a record of the run

    def __post_init__(self) -> None:
        check_choice("mean_update", self.mean_update, get_args(MeanUpdate))
        check_choice("covariance_update", self.covariance_update, get_args(CovarianceUpdate))
        check_choice("control", self.control, get_args(Control))
        check_choice("draws", self.draws, get_args(Draws))
        check_choice("bound", self.bound, get_args(Bound))
        if isinstance(self.learned, str):
            raise ValueError(f"Expected learned as a tuple of words, got {self.learned!r}. Write ({self.learned!r},).")
        if self.r_tilde is not None:
            check_positive("r_tilde", self.r_tilde, "Use None for all dense columns in every step.")
        check_positive("every", self.every, "Ask for a record every 100 steps, for example.")
        check_positive("rate", self.rate, "Steps go down the gradient; the paper's rate is 0.1.")
        check_positive("covariance_rate", self.covariance_rate, "In the unit of c_rr: 0.3, for example.")
        check_positive("final", self.final, "Rates decay to this part of themselves; use 1.0 for constant rates.")

    def learns(self, name: str) -> bool:
        """Whether a hyperparameter such as "kernel.log_lengthscale" is among those that steps may move."""
        return self.learned is None or bool(words_for(name).intersection(self.learned))


def words_for(name: str) -> set[str]:
    """What a hyperparameter is called: {"kernel.log_lengthscale", "kernel", "lengthscale"}."""
    kind, own = name.partition(".")[0], name.rpartition(".")[2].removeprefix("log_")
    return {name, kind, own} | ({"noise"} if kind == "likelihood" else set())


# What the paper says of its training (Appendix I.1): Eq. (3) is its control variate, all entries of C have one rate,
# hyperparameters are learned. Bound (B) stands in for its Theorem 3. Batches are those of its regression tables.
PAPER = Settings(n_tilde=500, m_tilde=10_000, iterations=100_000, learn_hyperparameters=True, covariance_update="entry")
