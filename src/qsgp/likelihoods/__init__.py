"""Sites g_l(f) = Pr(y_l | f), all log-concave in f. Adding one: a file here and a line in BY_NAME."""

from qsgp.interfaces import Likelihood
from qsgp.likelihoods.gaussian import Gaussian
from qsgp.likelihoods.laplace import Laplace
from qsgp.likelihoods.logistic import Logistic, sufficient_points

BY_NAME: dict[str, type[Likelihood]] = {"gaussian": Gaussian, "laplace": Laplace, "logistic": Logistic}

__all__ = ["BY_NAME", "Gaussian", "Laplace", "Logistic", "sufficient_points"]
