"""From any fitted model to one that takes further rows."""

import torch

from qsgp.bases import Fourier
from qsgp.interfaces import SpectralKernel
from qsgp.options import FEATURES, Options
from qsgp.posteriors import ClosedForm, KernelFunctionsAtRows, Posterior
from qsgp.streaming import MOST_FEATURES, Accumulated


def start_accumulating(posterior: Posterior, options: Options) -> Accumulated:
    """The rows of a closed form over Fourier features, or a table as it stands."""
    if isinstance(posterior, KernelFunctionsAtRows):
        raise ValueError(
            "Expected a model that can take portions, got one of kernel functions at its rows. Begin with partial_fit, "
            f"or fit with n_features={FEATURES}."
        )
    if not isinstance(posterior, ClosedForm):
        if not posterior.basis.diagonal or posterior.basis.m > MOST_FEATURES:
            raise ValueError(
                f"Expected a Fourier or grid basis of at most {MOST_FEATURES} features to add rows to, got "
                f"{type(posterior.basis).__name__} with {posterior.basis.m}. Fit with n_features={FEATURES} first."
            )
        return Accumulated.of(posterior)
    dtype = torch.float64
    kernel = posterior.kernel.with_parameters({n: v.to(dtype) for n, v in posterior.kernel.parameters().items()})
    assert isinstance(kernel, SpectralKernel)
    basis = Fourier(kernel, min(options.n_features or FEATURES, MOST_FEATURES), seed=options.seed)
    empty = Accumulated.empty(basis, posterior.likelihood, posterior.Y.shape[1])
    return empty.add(posterior.x, posterior.Y, posterior.weight)
