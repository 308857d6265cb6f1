"""MNIST with Fourier features and logistic sites, fixed hyperparameters (pixels / 255, lengthscale 5, variance 300).

Tasks: ``odd``, odd against even digits, probabilities averaged over q with the variance of the support points, times a
share that held-out training rows tell; ``ten``, one column for each class against the rest, normalised; the link
(sigmoid or softmax) and its temperature come from held-out training rows. Methods: ``newton``
(`qsgp.feature_newton`, residual kept at all rows), ``adagrad`` (steps over blocks with the kriged prediction in the
site), ``preconditioned`` (the same, preconditioned and averaged). Rows in the JSON file are not measured again.

    QSGP_DATA=... python benchmarks/mnist.py --json mnist.json
"""

import time
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, one_hot

from qsgp import blocks, datasets, feature_newton, preconditioned, sites
from qsgp.bases import Fourier
from qsgp.feature_dual import Features
from qsgp.kernels import SquaredExponential, hyperparameters
from qsgp.likelihoods import Logistic
from qsgp.support import Support
from qsgp.support_variance import SupportVariance
from table import Collected, arguments

LENGTHSCALE, VARIANCE, RATE = 5.0, 300.0, 0.02
METHODS = ["newton", "adagrad", "preconditioned"]
# task, method, m, m_tilde, seconds of descent; calibration comes on top
FULL = [
    ("odd", "newton", 1_000_000, 20_000, 25.0),
    ("odd", "adagrad", 1_000_000, 20_000, 25.0),
    ("odd", "preconditioned", 1_000_000, 20_000, 25.0),
    ("odd", "newton", 10_000_000, 20_000, 50.0),
    ("odd", "adagrad", 10_000_000, 20_000, 50.0),
    ("ten", "newton", 1_000_000, 20_000, 50.0),
    ("ten", "adagrad", 1_000_000, 20_000, 50.0),
]
QUICK = [
    ("odd", "newton", 4_000, 400, 40.0),
    ("odd", "adagrad", 4_000, 400, 40.0),
    ("odd", "preconditioned", 4_000, 400, 40.0),
    ("ten", "newton", 4_000, 400, 40.0),
    ("ten", "adagrad", 4_000, 400, 40.0),
]


class Data(NamedTuple):
    x: Tensor
    y: Tensor
    x_new: Tensor
    y_new: Tensor
    support: int
    device: str


def read(rows: int | None, support: int, device: str) -> Data:
    found = datasets.load("mnist")

    def pixels(table: Any) -> Tensor:
        return torch.tensor(table, dtype=torch.float32, device=device)

    def digits(table: Any) -> Tensor:
        return torch.tensor(table, device=device).long()

    x, y, x_new, y_new = found.x_train[:rows], found.y_train[:rows], found.x_test[:rows], found.y_test[:rows]
    return Data(pixels(x), digits(y), pixels(x_new), digits(y_new), support, device)


def train(data: Data, Y: Tensor, method: str, m: int, m_tilde: int, seconds: float) -> tuple[Fourier, Tensor, Tensor]:
    """The basis, the weights, and the predictions at the support points (the first rows)."""
    kernel = SquaredExponential(
        *hyperparameters(LENGTHSCALE, VARIANCE, d=data.x.shape[1], dtype=torch.float32, device=data.device)
    )
    basis, U, end = Fourier(kernel, m), data.x[: data.support], time.perf_counter() + seconds
    if method == "newton":
        found = feature_newton.solve(
            basis,
            data.x,
            Y,
            sites.logistic(),
            U,
            m_tilde=m_tilde,
            tolerance=1e-3,
            precision="fast",
            halt=lambda: time.perf_counter() > end,
        )
        return basis, found.V, found.f[: data.support]
    table = blocks.Blocks.build(
        data.x, Y, 1.0, basis, Support.build(kernel, U), min(1000, len(Y) // 4), m_tilde, sites.logistic(), "fast"
    )
    if method == "preconditioned":
        began = time.perf_counter()
        preconditioned.fit(table, Y.shape[1], 20)
        wait(data.device)
        spent = (time.perf_counter() - began) / 20
        V = preconditioned.fit(table, Y.shape[1], max(20, int(0.9 * (end - time.perf_counter()) / spent)))
        return basis, V, Features.of(basis, U, m_tilde, "fast").times(V)
    state = blocks.BlockState.zeros(table, Y.shape[1])
    once = blocks.stepper(table, state, RATE)
    while time.perf_counter() < end:
        for _ in range(20):
            once()
        wait(data.device)
    return basis, state.V, state.a


def odd(data: Data, method: str, m: int, m_tilde: int, seconds: float) -> tuple[float, float, float]:
    """Accuracy, mean negative log probability, seconds of training."""
    aside, rest = held_out(data)
    Y, Y_aside, Y_new = (2.0 * (digits % 2)[:, None] - 1 for digits in (rest.y, aside.y, data.y_new))
    wait(data.device)
    began = time.perf_counter()
    basis, V, at_support = train(rest, Y, method, m, m_tilde, seconds)
    site, U = sites.logistic(), rest.x[: data.support]
    assert site.curvature is not None
    variance = SupportVariance.build(basis.kernel, U, site.curvature(Y[: data.support], at_support), len(Y))

    def predict(x: Tensor) -> tuple[Tensor, Tensor]:
        return Features.of(basis, x, m_tilde, "fast").times(V), variance(x)

    def nlp(labels: Tensor, mean: Tensor, spread: Tensor, share: float) -> float:
        return float(-Logistic(21).log_density(labels, mean, share * spread).mean())

    # n_bar points stand for n: what they claim not to know is too much by a factor that held-out rows tell
    known = predict(aside.x)
    share = min((4.0**-k for k in range(8)), key=lambda share: nlp(Y_aside, *known, share))
    wait(data.device)
    spent = time.perf_counter() - began
    mean, spread = predict(data.x_new)
    return float((mean * Y_new > 0).float().mean()), nlp(Y_new, mean, spread, share), spent


def ten(data: Data, method: str, m: int, m_tilde: int, seconds: float) -> tuple[float, float, float]:
    aside, rest = held_out(data)
    wait(data.device)
    began = time.perf_counter()
    basis, V, _ = train(rest, 2.0 * one_hot(rest.y, 10) - 1, method, m, m_tilde, seconds)
    f = Features.of(basis, aside.x, m_tilde, "fast").times(V)
    candidates = [(link, t / 10) for link in (logsigmoid, lambda f: f) for t in range(2, 41)]
    link, temperature = min(candidates, key=lambda c: surprise(c[0](c[1] * f), aside.y))
    wait(data.device)
    spent = time.perf_counter() - began
    mean = Features.of(basis, data.x_new, m_tilde, "fast").times(V)
    return float((mean.argmax(1) == data.y_new).float().mean()), surprise(link(temperature * mean), data.y_new), spent


def held_out(data: Data) -> tuple[Data, Data]:
    """A twentieth of the training rows, for calibration, and the others."""
    held = len(data.x) // 20
    return data._replace(x=data.x[-held:], y=data.y[-held:]), data._replace(x=data.x[:-held], y=data.y[:-held])


def surprise(scores: Tensor, y: Tensor) -> float:
    return float(-torch.log_softmax(scores, 1).gather(1, y[:, None]).mean())


def wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def row(data: Data, task: str, method: str, m: int, m_tilde: int, seconds: float) -> dict[str, Any]:
    measure = {"odd": odd, "ten": ten}[task]
    if data.device.startswith("cuda"):  # compile the kernels before the clock starts
        measure(data, method, m_tilde, m_tilde, 0.0)
    accuracy, nlp, fit_s = measure(data, method, m, m_tilde, seconds)
    return {
        "task": task,
        "method": method,
        "n": len(data.x),
        "m": m,
        "batch_features": m_tilde,
        "accuracy": accuracy,
        "nlp": nlp,
        "fit_s": fit_s,
        "device": data.device,
    }


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--quick", action="store_true", help="4,000 rows and features, for a CPU")
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    chosen = parser.parse_args()
    data = read(4_000, 400, chosen.device) if chosen.quick else read(None, 4_000, chosen.device)
    rows = Collected(chosen.json, "MNIST, Fourier features, logistic sites")
    for case in QUICK if chosen.quick else FULL:
        if case[1] not in chosen.methods:
            continue
        names = ("task", "method", "m", "batch_features")
        key = dict(zip(names, case, strict=False)) | {"n": len(data.x), "device": chosen.device}
        rows.add(key, lambda case=case: row(data, *case))
    rows.show()


if __name__ == "__main__":
    main()
