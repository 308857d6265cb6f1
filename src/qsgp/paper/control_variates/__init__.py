"""Terms of zero mean that lower the variance of an estimate."""

from qsgp.paper.control_variates.gram import gram
from qsgp.paper.control_variates.kriging import kriged, kriged_in_site, kriging
from qsgp.paper.control_variates.nystrom import nystrom, nystrom_factor
from qsgp.paper.control_variates.sketch import Part, advance, optimal_coefficient
from qsgp.paper.control_variates.target import exact_target, target

__all__ = [
    "Part",
    "advance",
    "exact_target",
    "gram",
    "kriged",
    "kriged_in_site",
    "kriging",
    "nystrom",
    "nystrom_factor",
    "optimal_coefficient",
    "target",
]
