"""Tuning: one fair search for every backend, under the conditions of the final measurement."""

from tilebench_core.tune.choose import tuned_config
from tilebench_core.tune.journal import Candidate, Journal, candidate_key, tuning_log
from tilebench_core.tune.store import Winner, WinnerStore, winner_key

__all__ = [
    "Candidate",
    "Journal",
    "Winner",
    "WinnerStore",
    "candidate_key",
    "tuned_config",
    "tuning_log",
    "winner_key",
]
