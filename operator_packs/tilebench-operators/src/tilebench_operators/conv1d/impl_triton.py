"""One-dimensional convolution in Triton: channels-last pass and implicit GEMM; see `tilebench_operators._conv`."""

from tilebench_core import Case, Config, Kernel

from tilebench_operators._conv import convolution


def run(input, weight, stride, padding, groups, *, BM, BN, BK, num_warps, num_stages):
    """Return out [batch, Cout, L_out] of input [batch, Cin, L] and weight [Cout, Cin / groups, taps]."""
    return convolution(
        input, weight, stride, padding, groups, BM=BM, BH=1, BW=BN, BK=BK, num_warps=num_warps, num_stages=num_stages
    )


def default(case: Case) -> Config:
    # 128 bytes of reduction per step; three stages take 96 KiB, so two programs share a multiprocessor and one's
    # store overlaps the other's products: the reduction has only taps · Cin / BK = 6 steps in fp16.
    return {"BM": 128, "BN": 128, "BK": 128 // case.dtype_size, "num_warps": 4, "num_stages": 3}


def space(case: Case) -> list[Config]:
    return []


KERNEL = Kernel(run=run, default=default, space=space)
