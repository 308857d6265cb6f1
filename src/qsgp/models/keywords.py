"""The estimators' keywords, checked: words from a list, counts, positive numbers, a device that is there."""

import math
import numbers
import os
from typing import Any, TypeVar

import numpy as np
import torch
from sklearn.utils import check_random_state

from qsgp import memory
from qsgp.kernels import BY_NAME as KERNELS
from qsgp.kernels import factorising
from qsgp.likelihoods import BY_NAME as LIKELIHOODS
from qsgp.likelihoods import names as likelihood_names
from qsgp.training.options import Options
from qsgp.training.plan import ROWS_ROAD_HONOURS, SETTINGS_OF_STEPS

_UNSET = ("auto", None)
N = TypeVar("N", None, int)

CHOICES: dict[str, tuple[str, ...]] = {
    "basis": ("auto", "fourier", "inducing", "grid"),
    "metric": ("auto", "ard", "full"),
    "covariance": ("auto", "meanfield", "chevron", "full", "support", "samples"),
    "optimizer": ("auto", "adagrad", "preconditioned"),
    "dtype": ("float32", "float64"),
    "mean": ("constant", "linear"),
    "noise": ("auto", "equal"),
    "target_map": ("auto", "none", "sinh-arcsinh"),
}


def kernels() -> tuple[str, ...]:
    """Choices of ``kernel``: those registered by now."""
    return ("auto", *KERNELS)


def is_kernel(name: Any) -> bool:
    """One of the choices, or a sum of kernels such as "matern12+laplacian"."""
    return isinstance(name, str) and (name == "auto" or set(name.split("+")) <= set(KERNELS))


def likelihoods(*, labels: bool) -> tuple[str, ...]:
    """Choices of ``likelihood`` for classes (``labels``) or numbers."""
    return ("auto", *likelihood_names(labels=labels))


def read_options(estimator: Any) -> Options:
    """The keywords as `Options`; an error names the first that cannot be meant."""
    _check_words(estimator)
    _check_grid(estimator)
    if not isinstance(estimator.learn_hyperparameters, bool | np.bool_):
        raise ValueError(f"Expected learn_hyperparameters True or False, got {estimator.learn_hyperparameters!r}.")
    if estimator._relevance and estimator.covariance not in ("auto", "meanfield"):
        raise ValueError(
            f"Expected covariance 'auto' or 'meanfield' for a relevance vector machine, got {estimator.covariance!r}. "
            "Take a QSGP estimator for the others."
        )
    if estimator._relevance and estimator.basis != "auto":
        raise ValueError(
            f"Expected basis 'auto' for a relevance vector machine, got {estimator.basis!r}. Its functions are kernels "
            "at the training rows."
        )
    if estimator.mean == "linear" and estimator._labels:
        raise ValueError("Expected mean 'constant' for a classifier, got 'linear'. Labels have no linear trend.")
    _check_labels(estimator)
    _check_rows_covariance(estimator)
    _check_solved(estimator)
    place = device(estimator.device)
    return Options(
        likelihood=likelihood_of(estimator),
        noise="equal" if estimator._labels or estimator._relevance else estimator.noise,
        target_map="none" if estimator._labels else estimator.target_map,
        kernel=estimator.kernel,
        metric=estimator.metric,
        basis=estimator.basis,
        covariance=estimator.covariance,
        dense_columns=count(estimator, "dense_columns", 10) if estimator.covariance == "chevron" else 0,
        optimizer=estimator.optimizer,
        learn_hyperparameters=bool(estimator.learn_hyperparameters),
        max_time=positive(estimator, "max_time", None),
        tol=positive(estimator, "tol", "auto"),
        max_memory=memory.budget(estimator.max_memory, place),
        device=place,
        dtype=getattr(torch, estimator.dtype),
        seed=seed(estimator),
        relevance=estimator._relevance,
        by_numbers=estimator._labels and estimator.likelihood == "auto" and not estimator._relevance,
        checkpoint=folder(estimator.checkpoint),
        n_features=count(estimator, "n_features", None),
        batch_points=count(estimator, "batch_points", None),
        batch_features=count(estimator, "batch_features", None),
        support_points=count(estimator, "support_points", None),
        max_iter=count(estimator, "max_iter", None),
    )


def _check_words(estimator: Any) -> None:
    known = {"kernel": kernels(), "likelihood": likelihoods(labels=estimator._labels)}
    for name, choices in (known | CHOICES).items():
        value = getattr(estimator, name)
        if name == "kernel" and is_kernel(value):
            continue
        if not isinstance(value, str) or value not in choices:
            raise ValueError(
                f"Expected {name} among {', '.join(map(repr, choices))}, got {value!r}. Choose one of these."
            )


def _check_labels(estimator: Any) -> None:
    """What belongs to numbers alone."""
    if not estimator._labels:
        return
    for name in ("noise", "target_map"):
        if getattr(estimator, name) != "auto":
            raise ValueError(
                f"Expected {name} 'auto' for a classifier, got {getattr(estimator, name)!r}. Leave it out."
            )


def _check_grid(estimator: Any) -> None:
    """Its functions are products over the inputs as they are."""
    products = factorising()
    if estimator.basis == "grid" and estimator.kernel not in ("auto", *products):
        possible = " or ".join(f"{name!r}" for name in products)
        raise ValueError(
            f"Expected kernel={possible} with basis='grid', got {estimator.kernel!r}. Use {possible} or 'auto'."
        )
    if estimator.basis == "grid" and estimator.metric == "full":
        raise ValueError(
            "Expected metric 'auto' or 'ard' with basis='grid', got 'full'. A grid needs a product over the inputs as "
            "they are; take another basis for a learned metric."
        )


def _check_rows_covariance(estimator: Any) -> None:
    """Support points and draws belong to kernel functions at the rows, which nothing else may be asked of."""
    if estimator.covariance not in ("support", "samples") or estimator.optimizer == "preconditioned":
        return
    others = [name for name in SETTINGS_OF_STEPS if name not in ROWS_ROAD_HONOURS]
    named = [name for name in ("basis", "n_features", "optimizer", *others) if getattr(estimator, name) not in _UNSET]
    if named:
        raise ValueError(
            f"Expected covariance {estimator.covariance!r} with all else at 'auto', got it with {', '.join(named)}. "
            "Leave these out, or choose 'meanfield', 'chevron' or 'full'."
        )


def _check_solved(estimator: Any) -> None:
    """What optimizer="preconditioned" can do: Fourier features under Gaussian noise, solved for without steps."""
    if estimator.optimizer != "preconditioned":
        return
    if estimator._relevance or not LIKELIHOODS[likelihood_of(estimator)].fixed_sites:
        raise ValueError(
            "Expected optimizer 'auto' or 'adagrad' here, got 'preconditioned', which solves for Gaussian noise. Take "
            "QSGPRegressor with likelihood 'gaussian', or leave optimizer at 'auto'."
        )
    possible: dict[str, tuple[Any, ...]] = {"basis": ("auto", "fourier"), "covariance": ("auto", "support", "samples")}
    possible |= {"batch_points": ("auto",), "tol": ("auto", None), "checkpoint": (None,)}
    for name, values in possible.items():
        if (value := getattr(estimator, name)) not in values:
            raise ValueError(
                f"Expected {name} {' or '.join(map(repr, values))} with optimizer='preconditioned', got {value!r}. "
                "It solves for all weights of Fourier features together: there are no steps to set."
            )
    m = estimator.n_features
    if isinstance(m, numbers.Integral) and int(m) % 2:
        raise ValueError(f"Expected an even n_features, got {m}. Features are pairs of cosine and sine.")


def folder(checkpoint: Any) -> str | None:
    if checkpoint is None:
        return None
    if not isinstance(checkpoint, str | os.PathLike) or (os.path.exists(checkpoint) and not os.path.isdir(checkpoint)):
        raise ValueError(f"Expected checkpoint to be a folder, got {checkpoint!r}. It is made if it is not there.")
    return os.fspath(checkpoint)


def likelihood_of(estimator: Any) -> str:
    return (
        likelihood_names(labels=estimator._labels)[0] if estimator.likelihood == "auto" else str(estimator.likelihood)
    )


def device(name: Any) -> str:
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        kind = torch.device(name).type
    except (RuntimeError, TypeError):
        kind = "unknown"
    if kind not in ("cpu", "cuda") or (kind == "cuda" and not torch.cuda.is_available()):
        there = "'auto', 'cpu' or 'cuda'" if torch.cuda.is_available() else "'auto' or 'cpu' (no GPU is visible)"
        raise ValueError(f"Expected device {there}, got {name!r}. Leave it at 'auto'.")
    return str(name)


def seed(estimator: Any) -> int:
    if estimator.random_state is None and estimator.checkpoint is not None:
        return 0  # a run can be resumed only if it can be repeated
    return int(check_random_state(estimator.random_state).randint(2**31 - 1))


def count(estimator: Any, name: str, automatic: N) -> int | N:
    value = getattr(estimator, name)
    if isinstance(value, str) and value == "auto":
        return automatic
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or int(value) < 1:
        raise ValueError(f"Expected {name} to be a whole number >= 1 or 'auto', got {value!r}. Leave it at 'auto'.")
    return int(value)


def positive(estimator: Any, name: str, default: str | None) -> float | None:
    value = getattr(estimator, name)
    if value is None or (isinstance(value, str) and value == default):
        return None
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not 0 < float(value) < math.inf:
        raise ValueError(f"Expected {name} to be a finite number > 0 or {default!r}, got {value!r}. Leave it out.")
    return float(value)
