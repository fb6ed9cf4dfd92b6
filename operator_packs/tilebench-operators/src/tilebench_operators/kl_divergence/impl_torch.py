"""Kullback-Leibler divergence in PyTorch: `kl_div` computes more passes than its parts, so the parts stand here."""

import torch
from tilebench_core import Kernel


def run(log_predicted: torch.Tensor, true: torch.Tensor) -> torch.Tensor:
    """Return Σ true·(ln true - log_predicted) over the last axis of two [rows, cols], [rows] fp32; 0·ln 0 is 0.

    Three kernels, as against four of `kl_div` and a sum: t·ln t, its difference with t·l, and the sum.
    """
    entropy = torch.special.xlogy(true, true)
    return entropy.addcmul_(true, log_predicted, value=-1).sum(dim=-1)


KERNEL = Kernel(run=run)
