"""Sites g_l(f) = Pr(y_l | f), all log-concave in f. Adding one: a file here, and its class in the list below.

From outside the library `register` does the same as a decorator.
"""

from qsgp.likelihoods.gaussian import Gaussian
from qsgp.likelihoods.laplace import Laplace
from qsgp.likelihoods.logistic import Logistic, sufficient_points
from qsgp.likelihoods.mixture import Mixture
from qsgp.likelihoods.numbers import LabelsAsNumbers
from qsgp.likelihoods.registry import BY_NAME, first_guess, names, register

for _likelihood in (Gaussian, Laplace, Logistic, LabelsAsNumbers, Mixture):
    register(_likelihood)

__all__ = [
    "BY_NAME",
    "Gaussian",
    "LabelsAsNumbers",
    "Laplace",
    "Logistic",
    "Mixture",
    "first_guess",
    "names",
    "register",
    "sufficient_points",
]
