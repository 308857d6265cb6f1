"""The fitted model in words, from what it would write into its file."""

from typing import Any

import numpy as np

from qsgp.evaluation import input_names
from qsgp.kernels import BY_NAME as KERNELS
from qsgp.kernels.relevance import words
from qsgp.likelihoods import BY_NAME as LIKELIHOODS
from qsgp.memory import readable
from qsgp.report.page import number, percent

_NAMED = 4  # inputs of a direction
_BASES = {
    "Fourier": "random Fourier features",
    "Inducing": "inducing points",
    "Whitened": "inducing points",
    "Grid": "eigenfunctions on a grid",
    "KernelFunctions": "kernel functions at training rows",
}


def in_words(model: Any, target: str) -> list[str]:
    """One line each: kind and kernel, what was solved, noise, training, memory, recalibration."""
    header, likelihood = model.posterior_, LIKELIHOODS[model.likelihood_]
    each = "direction of a learned metric" if header["metric"] == "full" else "input"
    lines = [f"Kernel: {words(model.kernel_, KERNELS)}, with one lengthscale for each {each}."]
    if header["metric"] == "full":
        lines.append(_direction(model))
    lines.append(_what(model, header))
    if model.mean == "linear":
        lines.append("A linear trend of the inputs stands beside the process.")
    signal = np.sqrt(np.ravel(model.signal_variance_))
    if hasattr(model, "classes_"):
        lines.append(
            f"Labels by the {likelihood.words} likelihood, "
            f"{'one process' if len(model.classes_) == 2 else 'one process a class'}; "
            f"deviation of the {getattr(likelihood, 'meaning', 'function')} before seeing data: "
            f"{number(float(signal[0]))}."
        )
    else:
        noise = np.sqrt(np.ravel(model.noise_variance_))
        of = f"in the unit of {target}" if len(noise) == 1 else "for each output"
        lines.append(
            f"Noise: {likelihood.words}; deviation of the noise {_listed(noise)}, of the function {_listed(signal)}, "
            f"{of}."
        )
        mapped = np.ravel(model.target_map_) != "none"
        if mapped.any():
            lines.append(f"{target if mapped.all() else 'Some outputs'}: mapped by a sinh-arcsinh before the noise.")
    lines.append(_how(model))
    if not hasattr(model, "plan_") and (memory := getattr(model, "memory_", None)) is not None:
        lines.append(f"The fit reckoned with {readable(int(memory))} of memory.")
    lines.append(
        "Predictions were recalibrated by calibrate."
        if model.calibration_ is not None
        else "Predictions were not recalibrated (calibrate)."
    )
    return lines


def _direction(model: Any) -> str:
    """The combination of inputs along which the function changes most, each input in units of its deviation."""
    U, size, _ = np.linalg.svd(model.metric_ * model.input_scale_[:, None], full_matrices=False)
    loudest = U[:, 0] * np.sign(U[np.abs(U[:, 0]).argmax(), 0])
    order, names = np.argsort(-np.abs(loudest), kind="stable")[:_NAMED], input_names(model)
    parts = " ".join(f"{'-' if loudest[j] < 0 else '+'} {abs(loudest[j]):.2f} {names[j]}" for j in order)
    share = percent(float(size[0] ** 2 / np.square(size).sum()))
    return f"The direction that matters most is {parts.removeprefix('+ ')}, with {share} of all there is."


def plan(model: Any) -> list[str]:
    """What the fit was to do, and why; nothing for a model of before plans were kept."""
    return list(model.plan_.sentences) if hasattr(model, "plan_") else []


def _what(model: Any, header: dict[str, Any]) -> str:
    kind = header["kind"]
    if kind == "closed form":
        return f"Posterior: exact, solved in closed form on {header['rows']:,} training rows."
    if kind == "kernel functions at rows":
        mean = "exact mean" if LIKELIHOODS[model.likelihood_].fixed_sites else "mean"
        return (
            f"Posterior: the {mean} over {header['rows']:,} training rows, solved by blocks of rows; variances with "
            f"the help of {header.get('support_points', 0):,} of them."
        )
    if kind == "fourier weights":
        return (
            f"Posterior: weights of {int(header['m']):,} {_BASES['Fourier']}, solved for together; variances from "
            f"draws and {header.get('support_points', 0):,} training rows."
        )
    if kind != "features":
        return f"Posterior: {kind}."
    m, k = int(header["m"]), int(header["k"])
    if hasattr(model, "relevance_"):
        return (
            f"Posterior: {len(model.relevance_):,} kernel functions at training rows are left, the relevance vectors."
        )
    covariance = "mean-field" if k == 0 else "full" if k == m else f"chevron with {k} dense columns"
    return f"Posterior: weights of {m:,} {_BASES.get(header['basis'], header['basis'])}, {covariance} covariance."


def _how(model: Any) -> str:
    seconds = [record["seconds"] for record in model.history_ if "seconds" in record]
    if not seconds:
        return "Training: hyperparameters by marginal likelihood, then one exact solution; no iterations were recorded."
    steps = f"{model.n_iter_:,} iteration{'s' if model.n_iter_ > 1 else ''}"
    return f"Training: {steps}; the last record was made after {number(float(max(seconds)))} seconds."


def _listed(values: Any) -> str:
    return ", ".join(number(float(value)) for value in values)


def keywords(model: Any) -> list[list[Any]]:
    """Constructor arguments; and whether they differ from the defaults."""
    usual = type(model)().get_params()
    return [[name, str(value), "" if value == usual[name] else "yes"] for name, value in model.get_params().items()]
