"""A model of labels taken for numbers as one of log odds, as every classifier's is once it is fitted."""

from dataclasses import replace
from typing import Any

import numpy as np

from qsgp.data.scaling import Scaling
from qsgp.kernels.relevance import stretched
from qsgp.likelihoods import LabelsAsNumbers, Logistic
from qsgp.posteriors.posteriors import ClosedForm, KernelFunctionsAtRows, Posterior


def as_log_odds(scaling: Scaling, posterior: Posterior) -> tuple[Scaling, Posterior]:
    """f = scale g has the kernel of g times scale^2 and its noises likewise; any other model as it is."""
    sites = posterior.likelihood
    if isinstance(sites, Logistic) and isinstance(posterior, ClosedForm):  # it knows the labels themselves
        return replace(scaling, y_mean=np.zeros_like(scaling.y_mean)), posterior
    if not isinstance(sites, LabelsAsNumbers):
        return scaling, posterior
    kernel: Any = stretched(posterior.kernel, float(sites.scale) ** 2)
    centred = replace(scaling, y_mean=float(sites.scale) * scaling.y_mean)
    if isinstance(posterior, KernelFunctionsAtRows):
        spread = posterior.spread
        square = float(sites.scale) ** 2
        spread = replace(spread, kernel=kernel, noise=square * spread.noise, factor=float(sites.scale) * spread.factor)
        A = posterior.A / sites.scale.to(posterior.A)
        return centred, replace(posterior, kernel=kernel, likelihood=Logistic(), A=A, spread=spread)
    raise TypeError(f"labels as numbers in {type(posterior).__name__}")
