"""Verification: nothing is timed that has not passed."""

from tilebench_core.verify.compare import Comparison, compare_outputs, first_difference
from tilebench_core.verify.prepare import PreparedCase, precision_state, prepare_case
from tilebench_core.verify.protocol import Verdict, verify_launch

__all__ = [
    "Comparison",
    "PreparedCase",
    "Verdict",
    "compare_outputs",
    "first_difference",
    "precision_state",
    "prepare_case",
    "verify_launch",
]
