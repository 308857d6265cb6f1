"""scikit-learn's own battery on every estimator. Skips only what needs a package that is not installed."""

import pytest
from sklearn.utils.estimator_checks import check_estimator, check_sample_weight_equivalence_on_dense_data

import qsgp

# Why a check may be skipped: the reason scikit-learn gives, and ours.
MAY_SKIP = {
    "SCIPY_ARRAY_API is not set": "an option of scipy's that must be set before it is imported",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["QSGPRegressor", "QSGPClassifier", "QSRVMRegressor", "QSRVMClassifier"])
@pytest.mark.filterwarnings("default")  # the battery itself warns about what it skips
def test_the_battery_of_scikit_learn(name, without_shape_checks):
    results = check_estimator(getattr(qsgp, name)(), on_fail=None, on_skip=None)
    failed = [(r["check_name"], r["exception"]) for r in results if r["status"] == "failed"]
    skipped = [r["exception"] for r in results if r["status"] == "skipped"]
    assert not failed
    assert all(any(str(reason).startswith(known) for known in MAY_SKIP) for reason in skipped)
    assert sum(r["status"] == "passed" for r in results) >= 50


@pytest.mark.parametrize("name", ["QSGPRegressor", "QSGPClassifier", "QSRVMRegressor", "QSRVMClassifier"])
def test_a_row_of_weight_two_is_the_row_twice(name, without_shape_checks):
    """The one check of that battery that has found slips more than once."""
    check_sample_weight_equivalence_on_dense_data(name, getattr(qsgp, name)())
