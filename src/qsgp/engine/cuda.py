"""NVIDIA GPUs: Triton kernels, launched on the device of the inputs; plain torch where they cannot run."""

# mypy: disable-error-code="import-not-found, import-untyped"

from collections.abc import Callable

import torch
from torch import Tensor
from triton.runtime.errors import OutOfResources

from qsgp.engine import cuda_features, cuda_kernels, cuda_l1, reference
from qsgp.engine.cuda_device import usable
from qsgp.engine.formulas import RADIAL

__all__ = ["k_v", "phi_v", "phit_r"]


def _guarded(product: Callable[..., Tensor], plain: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Triton launches on the current device, whatever device its arguments are on. Tiles were chosen on an H200: on a
    GPU with less shared memory the largest ones, of more than 64 inputs, may not fit."""

    def run(x: Tensor, *rest: object) -> Tensor:
        if not usable(x.device):
            return plain(x, *rest)
        with torch.cuda.device_of(x):
            try:
                return product(x, *rest)
            except OutOfResources:
                return plain(x, *rest)

    return run


phi_v = _guarded(cuda_features.phi_v, reference.phi_v)
phit_r = _guarded(cuda_features.phit_r, reference.phit_r)
_k_v = dict.fromkeys(RADIAL, _guarded(cuda_kernels.k_v, reference.k_v))
_k_v["laplacian"] = _guarded(cuda_l1.k_v, reference.k_v)


def k_v(x: Tensor, z: Tensor, V: Tensor, lengthscale: Tensor, kernel: str, precision: str = "default") -> Tensor:
    """Plain torch for a kernel that the Triton files have no formula for."""
    return _k_v.get(kernel, reference.k_v)(x, z, V, lengthscale, kernel, precision)
