"""The likelihoods that can be asked for by name, in keywords, commands and model files."""

from typing import Any, TypeVar

import torch

from qsgp.interfaces import Likelihood

L = TypeVar("L", bound=type[Any])

BY_NAME: dict[str, type[Any]] = {}
_NEEDED: tuple[str, ...] = ("name", "words", "labels", "fixed_sites", "noise_variance", "log_site", "expected_log_site")
_NEEDED += ("quadratic_bound", "optimal_xi", "log_density", "moments", "quantile", "parameters", "with_parameters")
_OF_NUMBERS = ("of_noise", "first_noise", "cdf", "crps")


def register(likelihood: L) -> L:
    """Make a class of likelihoods known by its ``name``; to be used as a decorator.

    Classifiers take those of ``labels``, regressors the others. A class of labels is made without arguments; one of
    numbers begins its search at the noise variance ``first_noise``, in units of the variance of the targets.
    """
    needed = (*_NEEDED, *(() if getattr(likelihood, "labels", True) else _OF_NUMBERS))
    fields = getattr(likelihood, "__dataclass_fields__", {})
    lacking = [each for each in needed if not (hasattr(likelihood, each) or each in fields)]
    if lacking:
        raise TypeError(
            f"Expected a likelihood with {', '.join(needed)}, got {likelihood.__name__} without {', '.join(lacking)}. "
            "Add these; docs/extending.md has an example."
        )
    if BY_NAME.get(likelihood.name, likelihood).__qualname__ != likelihood.__qualname__:
        raise ValueError(
            f"Expected a name that no other likelihood has, got {likelihood.name!r}, the name of "
            f"{BY_NAME[likelihood.name].__name__}. Choose another name."
        )
    BY_NAME[likelihood.name] = likelihood
    return likelihood


def names(*, labels: bool) -> tuple[str, ...]:
    """Those of classifiers or of regressors; the first is what "auto" means."""
    return tuple(
        name
        for name, likelihood in BY_NAME.items()
        if likelihood.labels == labels
        and not (getattr(likelihood, "trains_only", False) or getattr(likelihood, "predicts_only", False))
    )


def first_guess(name: str) -> Likelihood:
    """Where a search of hyperparameters begins, for standardised targets."""
    likelihood = BY_NAME[name]
    made: Likelihood = (
        likelihood()
        if likelihood.labels and not likelihood.fixed_sites
        else likelihood.of_noise(torch.tensor(likelihood.first_noise, dtype=torch.float64))
    )
    return made
