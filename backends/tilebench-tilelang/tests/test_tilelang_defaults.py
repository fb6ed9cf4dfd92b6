"""Every kernel's default numbers of threads lower for Hopper: TileLang rejects some, such as 384 in a reduction."""

import pytest
from tilebench_core.device import target_device
from tilebench_core.precompile.unfilled import UnfilledDraw
from tilebench_core.registry import installed
from tilebench_core.testing.kernel_check import select_cases

from tilebench_tilelang.backend import TilelangBackend

OPERATORS = [
    operator for operator in installed().operators.values() if installed().kernels_for(operator, TilelangBackend.name)
]


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.folder)
def test_the_thread_counts_of_grid_and_edge_cases_lower(operator):
    pytest.importorskip("tilelang")
    kernel = installed().kernel(operator, TilelangBackend.name).load()
    # The first case of each dtype is lowered by the pack's own tests.
    lowered = {kernel.default(operator.config.cases(dtype)[0]).get("threads") for dtype in operator.config.dtypes}
    failures = []
    for dtype in operator.config.dtypes:
        for case in select_cases(operator, dtype, "grid,edge"):
            config = kernel.default(case)
            # One lowering per number of threads: more would take minutes, and the campaign on a GPU compiles them all.
            if kernel.unsupported(case, target_device("sm_90")) or config.get("threads") in lowered:
                continue
            lowered.add(config.get("threads"))
            try:
                TilelangBackend().compile_for(kernel, operator.load().inputs(case, UnfilledDraw()), config, "sm_90")
            except Exception as error:  # all of them are of interest, not the first only
                failures.append(f"{dtype} {case.label} {dict(config)}: {error}")
    assert not failures, "\n".join(failures)
