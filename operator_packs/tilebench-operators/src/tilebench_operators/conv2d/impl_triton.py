from tilebench_core import Case, Config, Kernel

from tilebench_operators._conv import convolution as run


def default(case: Case) -> Config:
    return {"BM": 128, "BH": 4, "BW": 32, "BK": 128 // case.dtype_size, "num_warps": 4, "num_stages": 3}


def space(case: Case) -> list[Config]:
    return []


KERNEL = Kernel(run=run, default=default, space=space)
