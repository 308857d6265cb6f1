"""MNIST with logistic sites or labels taken for numbers; pixels / 255, one lengthscale for all of them.

Tasks: ``odd``, odd against even digits, probabilities averaged over q with the variance of the support points, times a
share that held-out training rows tell; ``ten``, one column for each class against the rest, normalised; the link
(sigmoid or softmax) and its temperature come from held-out training rows. Methods over m Fourier features with logistic
sites: ``newton`` (`qsgp.solvers.feature_newton`, residual kept at all rows), ``adagrad`` (steps over blocks with the
kriged prediction in the site), ``preconditioned`` (the same, preconditioned and averaged). ``labels``: `QSGPRegressor`
with labels of +-1 for targets, a kernel function at every row (m = n). Kernel, lengthscale and variance are learned
from some thousand training rows (`qsgp.hyperparameters.search.learn`), the variance for ``odd`` by rows held out from
models of 10^5 features; with --fixed they are rbf, 5 and 300. fit_s is the time of that (learn_s), of training and of
calibration. Rows in the JSON file are not measured again.

    QSGP_DATA=... python benchmarks/mnist.py --json mnist.json
"""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, one_hot

from qsgp import QSGPRegressor, datasets, engine
from qsgp.bases import Fourier
from qsgp.data.rows import Rows
from qsgp.hyperparameters import search
from qsgp.hyperparameters.small_tables import Watch
from qsgp.kernels import SquaredExponential, hyperparameters
from qsgp.likelihoods import Logistic
from qsgp.likelihoods import pointwise as sites
from qsgp.paper import blocks, preconditioned
from qsgp.paper.support import Support
from qsgp.solvers import feature_newton
from qsgp.solvers.feature_dual import Descent, Features
from qsgp.solvers.support_variance import SupportVariance
from qsgp.training.learning import asked
from qsgp.training.options import Options
from table import Collected, arguments

LENGTHSCALE, VARIANCE, RATE = 5.0, 300.0, 0.02
LEARN = {"odd": 4000, "ten": 2000}  # rows for the hyperparameters: ten columns take as many factors
VARIANCES = (16.0, 64.0, 256.0, 1024.0)
FEW = 100_000  # features with which variances are compared
METHODS = ["newton", "adagrad", "preconditioned", "labels"]
# task, method, m, m_tilde, seconds of descent; calibration comes on top
FULL = [
    ("odd", "newton", 1_000_000, 20_000, 25.0),
    ("odd", "adagrad", 1_000_000, 20_000, 25.0),
    ("odd", "preconditioned", 1_000_000, 20_000, 25.0),
    ("odd", "newton", 10_000_000, 20_000, 40.0),
    ("odd", "adagrad", 10_000_000, 20_000, 50.0),
    ("ten", "newton", 1_000_000, 20_000, 50.0),
    ("ten", "adagrad", 1_000_000, 20_000, 50.0),
    ("ten", "labels", 0, 0, 50.0),  # m = n
]
QUICK = [
    ("odd", "newton", 4_000, 400, 40.0),
    ("odd", "adagrad", 4_000, 400, 40.0),
    ("odd", "preconditioned", 4_000, 400, 40.0),
    ("ten", "newton", 4_000, 400, 40.0),
    ("ten", "adagrad", 4_000, 400, 40.0),
    ("ten", "labels", 0, 0, 40.0),
]


class Data(NamedTuple):
    x: Tensor
    y: Tensor
    x_new: Tensor
    y_new: Tensor
    support: int
    device: str
    kernel: Any = None
    noise: float = 0.0  # variance, of labels


def read(rows: int | None, support: int, device: str) -> Data:
    found = datasets.load("mnist")

    def pixels(table: Any) -> Tensor:
        return torch.tensor(table, dtype=torch.float32, device=device)

    def digits(table: Any) -> Tensor:
        return torch.tensor(table, device=device).long()

    x, y, x_new, y_new = found.x_train[:rows], found.y_train[:rows], found.x_test[:rows], found.y_test[:rows]
    return Data(pixels(x), digits(y), pixels(x_new), digits(y_new), support, device)


def learned(data: Data, Y: Tensor, rows: int) -> Data:
    """With a kernel by the evidence of some rows."""
    options = Options(likelihood="logistic", device=data.device)
    some = Rows(data.x, Y, torch.ones_like(Y[:, 0]))
    kernel, _ = search.learn(some, asked(options, some.n, rows), Watch())
    single = {name: value.float().to(data.device) for name, value in kernel.parameters().items()}
    return data._replace(kernel=kernel.with_parameters(single))


def fixed(data: Data) -> Data:
    sizes = hyperparameters(LENGTHSCALE, VARIANCE, d=data.x.shape[1], dtype=torch.float32, device=data.device)
    return data._replace(kernel=SquaredExponential(*sizes))


def train(data: Data, Y: Tensor, method: str, m: int, m_tilde: int, seconds: float) -> tuple[Fourier, Tensor, Tensor]:
    """The basis, the weights, and the predictions at the support points (the first rows)."""
    kernel = data.kernel
    basis, U, end = Fourier(kernel, m), data.x[: data.support], time.perf_counter() + seconds
    if method == "newton":
        descent = Descent(m_tilde, 10, 1e-3, precision="fast", halt=lambda: time.perf_counter() > end)
        found = feature_newton.solve(basis, data.x, Y, sites.logistic(), U, descent)
        return basis, found.V, found.f[: data.support]
    table = blocks.Blocks.build(
        data.x, Y, sites.logistic(), basis, Support.build(kernel, U), min(1000, len(Y) // 4), m_tilde
    )
    table = replace(table, precision="fast")
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


def odd(data: Data, method: str, m: int, m_tilde: int, seconds: float, fix: bool) -> dict[str, Any]:
    """Accuracy, mean negative log probability, seconds of training."""
    aside, rest = held_out(data)
    Y, Y_aside, Y_new = (2.0 * (digits % 2)[:, None] - 1 for digits in (rest.y, aside.y, data.y_new))
    wait(data.device)
    began = time.perf_counter()
    if fix:
        rest = fixed(rest)
    else:
        # Few rows want small functions: all rows say how large, with as many features as that question needs.
        rest, few = learned(rest, Y, min(LEARN["odd"], len(Y))), min(m, FEW)
        candidates = [scaled(rest, variance) for variance in VARIANCES]
        judged = [predictor(own, aside, Y, Y_aside, "newton", few, min(few, m_tilde), 2.0)[1] for own in candidates]
        rest = candidates[min(range(len(judged)), key=judged.__getitem__)]
    wait(data.device)
    learn_s = time.perf_counter() - began
    nlp_of, _ = predictor(rest, aside, Y, Y_aside, method, m, m_tilde, seconds)
    wait(data.device)
    spent = time.perf_counter() - began
    mean, nlp = nlp_of(data.x_new, Y_new)
    accuracy = float((mean * Y_new > 0).float().mean())
    return {"accuracy": accuracy, "nlp": nlp, "fit_s": spent, "learn_s": learn_s} | told(rest)


def predictor(
    data: Data, aside: Data, Y: Tensor, Y_aside: Tensor, method: str, m: int, m_tilde: int, seconds: float
) -> tuple[Callable[[Tensor, Tensor], tuple[Tensor, float]], float]:
    """What gives means and the mean negative log probability of labels, and that of the rows held out."""
    basis, V, at_support = train(data, Y, method, m, m_tilde, seconds)
    site, U = sites.logistic(), data.x[: data.support]
    assert site.curvature is not None
    variance = SupportVariance.build(basis.kernel, U, site.curvature(Y[: data.support], at_support), len(Y))

    def predict(x: Tensor) -> tuple[Tensor, Tensor]:
        return Features.of(basis, x, m_tilde, "fast").times(V), variance(x)

    def nlp(labels: Tensor, mean: Tensor, spread: Tensor, share: float) -> float:
        return float(-Logistic(21).log_density(labels, mean, share * spread).mean())

    # n_bar points stand for n: what they claim not to know is too much by a factor that held-out rows tell
    known = predict(aside.x)
    share = min((4.0**-k for k in range(8)), key=lambda share: nlp(Y_aside, *known, share))

    def nlp_of(x: Tensor, labels: Tensor) -> tuple[Tensor, float]:
        mean, spread = predict(x)
        return mean, nlp(labels, mean, spread, share)

    return nlp_of, nlp(Y_aside, *known, share)


def scaled(data: Data, variance: float) -> Data:
    log_variance = torch.tensor(variance, device=data.device).log()
    return data._replace(kernel=data.kernel.with_parameters({"log_variance": log_variance}))


def ten(data: Data, method: str, m: int, m_tilde: int, seconds: float, fix: bool) -> dict[str, Any]:
    aside, rest = held_out(data)
    Y = 2.0 * one_hot(rest.y, 10) - 1
    wait(data.device)
    began = time.perf_counter()
    if method == "labels":
        predict, rest = labels(rest, Y, seconds)
        learn_s = None
    else:
        rest = fixed(rest) if fix else learned(rest, Y, min(LEARN["ten"], len(Y)))
        wait(data.device)
        learn_s = time.perf_counter() - began
        basis, V, _ = train(rest, Y, method, m, m_tilde, seconds)

        def predict(x: Tensor) -> Tensor:
            return Features.of(basis, x, m_tilde, "fast").times(V)

    f = predict(aside.x)
    candidates = [(link, 1.1**t) for link in (logsigmoid, lambda f: f) for t in range(-20, 41)]
    link, temperature = min(candidates, key=lambda c: surprise(c[0](c[1] * f), aside.y))
    wait(data.device)
    spent = time.perf_counter() - began
    mean = predict(data.x_new)
    accuracy = float((mean.argmax(1) == data.y_new).float().mean())
    nlp = surprise(link(temperature * mean), data.y_new)
    return {"accuracy": accuracy, "nlp": nlp, "fit_s": spent, "learn_s": learn_s} | told(rest)


def labels(data: Data, Y: Tensor, seconds: float) -> tuple[Callable[[Tensor], Tensor], Data]:
    """`QSGPRegressor` with the classes as ten targets; and the data with its kernel and noise. Probabilities come from
    the means alone, so there are no draws."""
    model = QSGPRegressor(max_time=seconds, covariance="support", device=data.device, random_state=0)
    model.fit(data.x.cpu().numpy(), Y.cpu().numpy())

    def predict(x: Tensor) -> Tensor:
        return torch.from_numpy(model.predict(x.cpu().numpy())).to(data.device)

    posterior = model._posterior
    return predict, data._replace(kernel=posterior.kernel, noise=float(posterior.likelihood.noise_variance))


def told(data: Data) -> dict[str, Any]:
    """The hyperparameters; lengthscales are equal, or were before inputs were standardised."""
    kernel, noise = data.kernel, data.noise
    lengthscale, variance = float(kernel.lengthscale.median()), float(kernel.variance)
    return {"kernel": type(kernel).__name__, "lengthscale": lengthscale, "variance": variance, "noise": noise}


def held_out(data: Data) -> tuple[Data, Data]:
    """A twentieth of the training rows, for calibration, and the others."""
    held = len(data.x) // 20
    return data._replace(x=data.x[-held:], y=data.y[-held:]), data._replace(x=data.x[:-held], y=data.y[:-held])


def surprise(scores: Tensor, y: Tensor) -> float:
    return float(-torch.log_softmax(scores, 1).gather(1, y[:, None]).mean())


def wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def row(data: Data, task: str, method: str, m: int, m_tilde: int, seconds: float, fix: bool) -> dict[str, Any]:
    measure = {"odd": odd, "ten": ten}[task]
    if data.device.startswith("cuda"):  # compile the kernels before the clock starts: half a minute for 784 inputs
        some = data._replace(x=data.x[:8_000], y=data.y[:8_000], support=400)
        measure(some, method, m_tilde, m_tilde, 0.0 if m else 2.0, fix)
        for kernel in ("rbf", "matern32", "matern52") if method == "labels" else ():  # the evidence may prefer any
            one = torch.ones((), device=data.device)
            engine.k_v(some.x, some.x, some.x[:, :10].contiguous(), one.expand(some.x.shape[1]), one, kernel=kernel)
    found = measure(data, method, m, m_tilde, seconds, fix)
    key = {"task": task, "method": method, "n": len(data.x), "m": m or len(data.x), "batch_features": m_tilde}
    return key | {"fixed": fix} | found | {"device": data.device}


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--quick", action="store_true", help="4,000 rows and features, for a CPU")
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS)
    parser.add_argument("--tasks", nargs="+", default=["odd", "ten"], choices=["odd", "ten"])
    parser.add_argument("--fixed", action="store_true", help="rbf, lengthscale 5 and variance 300; nothing is learned")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    chosen = parser.parse_args()
    data = read(4_000, 400, chosen.device) if chosen.quick else read(None, 4_000, chosen.device)
    rows = Collected(chosen.json, "MNIST", seed=0)
    for case in QUICK if chosen.quick else FULL:
        task, method, m, m_tilde, _ = case
        if method not in chosen.methods or task not in chosen.tasks:
            continue
        key = {"task": task, "method": method, "m": m or len(data.x), "batch_features": m_tilde, "n": len(data.x)}
        key |= {"fixed": chosen.fixed, "device": chosen.device}
        rows.add(key, lambda case=case: row(data, *case, chosen.fixed))
    rows.show()


if __name__ == "__main__":
    main()
