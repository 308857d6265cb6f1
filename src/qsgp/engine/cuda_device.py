"""Whether the Triton kernels run on a device: asked once, answered by trying."""

# mypy: disable-error-code="import-not-found, import-untyped"

import functools
import warnings

import torch

from qsgp.engine.triton_prepare import split

OLDEST = (8, 0)  # compute capability: tensor cores and asynchronous copies as the kernels take them for granted


@functools.cache
def usable(device: torch.device) -> bool:
    """An NVIDIA GPU of the Ampere generation or later (the kernels hold its assembly), and a Triton that compiles.

    Triton builds its launchers with a C compiler, which a host with a GPU may lack.
    """
    if device.type != "cuda":
        return True  # Triton's interpreter
    if torch.version.hip is not None or torch.cuda.get_device_capability(device) < OLDEST:
        return False
    try:
        with torch.cuda.device(device):
            split(torch.zeros(1, 1, device=device), torch.ones((), device=device))
    except Exception as failure:  # whatever a compiler, a driver or a file system may raise
        warnings.warn(
            f"Expected Triton to compile for {device}, got {type(failure).__name__}: {failure}. Plain torch computes "
            "instead, many times slower. Triton needs a C compiler (Debian and Ubuntu: apt-get install gcc).",
            stacklevel=2,
        )
        return False
    return True
