"""Quadruply stochastic Gaussian processes: a training step costs the same whatever the rows and basis functions."""

from qsgp.models import QSGPClassifier, QSGPRegressor, QSRVMClassifier, QSRVMRegressor, load

__all__ = ["QSGPClassifier", "QSGPRegressor", "QSRVMClassifier", "QSRVMRegressor", "load"]
