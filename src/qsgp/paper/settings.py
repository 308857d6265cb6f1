"""How to train: all that is not the problem itself."""

from dataclasses import dataclass
from typing import Literal, get_args

from qsgp.checks import check_choice, check_positive

Control = Literal["none", "gram", "kriging"]
Bound = Literal["A", "B", "Q"]
MeanUpdate = Literal["adagrad", "newton", "implicit"]


@dataclass(frozen=True)
class Settings:
    """How to train; the defaults of rate, hyper_rate and frozen are the paper's (Appendix I.1).

    ``control="gram"`` is for Gaussian noise; sites know kriging or none. ``mean_update="newton"`` solves for the block
    of mu that was drawn, a full step at first, decaying like the rates. With m_tilde < m it can diverge: it is safe
    only where kriging from many support points leaves the sampled gradient almost no noise. ``mean_update="implicit"``
    solves for a block of mu and of the dense columns of C at once (`implicit.implicit_step`); ``rate`` is then the part
    of a Newton step that is taken of what the data determine.
    """

    n_tilde: int = 500
    m_tilde: int = 500
    iterations: int = 10_000
    rate: float = 0.1
    hyper_rate: float = 1e-5
    final: float = 0.01  # both rates decay exponentially to this part of themselves
    frozen: float = 0.1  # part of the iterations before hyperparameters move
    learn_hyperparameters: bool = False
    determinant_rows: int = 0  # rows of a dense S for its log-determinant; hyperparameters of such a basis need some
    learned: str = ""  # only hyperparameters whose names begin so: "likelihood" leaves the kernel alone
    mean_update: MeanUpdate = "adagrad"
    control: Control = "gram"
    bound: Bound = "B"
    replacement: bool = False
    seed: int = 0
    every: int = 100  # steps to a record of the run

    def __post_init__(self) -> None:
        check_choice("mean_update", self.mean_update, get_args(MeanUpdate))
        check_choice("control", self.control, get_args(Control))
        check_choice("bound", self.bound, get_args(Bound))
        check_positive("every", self.every, "Ask for a record every 100 steps, for example.")
        check_positive("rate", self.rate, "Steps go down the gradient; the paper's rate is 0.1.")
        check_positive("final", self.final, "Rates decay to this part of themselves; use 1.0 for constant rates.")
