"""From records to the values that people cite: ratios per case, then geometric means, with their support beside them."""

from tilebench_core.analysis.points import Contestant, Point, View, geomean, ratio, view_of
from tilebench_core.analysis.results import Peaks, Results, load_results
from tilebench_core.analysis.standings import BASELINE, Mean, Standing, mean_of, standings, utilisation
from tilebench_core.analysis.wins import Duel, duels

__all__ = [
    "BASELINE",
    "Contestant",
    "Duel",
    "Mean",
    "Peaks",
    "Point",
    "Results",
    "Standing",
    "View",
    "duels",
    "geomean",
    "load_results",
    "mean_of",
    "ratio",
    "standings",
    "utilisation",
    "view_of",
]
