"""The user's door: four scikit-learn estimators and `load`. Plain words here, paper symbols inside."""

from qsgp.models.classifier import QSGPClassifier, QSRVMClassifier
from qsgp.models.loading import ESTIMATORS, load
from qsgp.models.regressor import QSGPRegressor, QSRVMRegressor

__all__ = ["ESTIMATORS", "QSGPClassifier", "QSGPRegressor", "QSRVMClassifier", "QSRVMRegressor", "load"]
