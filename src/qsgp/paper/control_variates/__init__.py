"""Terms of zero mean that lower the variance of an estimate."""

from qsgp.paper.control_variates.gram import gram
from qsgp.paper.control_variates.kriging import kriged, kriged_in_site, kriged_quadratic
from qsgp.paper.control_variates.nystrom import nystrom, nystrom_factor
from qsgp.paper.control_variates.sketch import advance, optimal_coefficient
from qsgp.paper.control_variates.target import exact_target, target

__all__ = [
    "advance",
    "exact_target",
    "gram",
    "kriged",
    "kriged_in_site",
    "kriged_quadratic",
    "nystrom",
    "nystrom_factor",
    "optimal_coefficient",
    "target",
]
