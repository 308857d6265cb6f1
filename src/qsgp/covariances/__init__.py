"""Structures of the variational covariance."""

from qsgp.covariances.chevron import Chevron

__all__ = ["Chevron"]
