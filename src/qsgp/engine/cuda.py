"""NVIDIA GPUs: Triton kernels."""

from qsgp.engine.cuda_features import phi_v, phit_r
from qsgp.engine.cuda_kernels import k_v

__all__ = ["k_v", "phi_v", "phit_r"]
