"""The pack against the contract of packs, and the published size of the benchmark."""

from __future__ import annotations

from collections import Counter
from inspect import signature

import pytest
from tilebench_core.precompile.unfilled import UnfilledDraw
from tilebench_core.registry import installed
from tilebench_core.testing.pack_contract import PackContract, _check_call

OURS = [o for o in installed().operators.values() if o.provider.name == "tilebench-operators"]


class TestOperators(PackContract):
    distribution = "tilebench-operators"
    importable_backends = ("torch", "triton", "cutile", "tilelang")


def test_the_suite_has_its_45_operators_in_five_categories() -> None:
    counts = Counter(operator.config.category for operator in OURS)
    assert counts == {"pointwise": 12, "reduction": 11, "matmul": 8, "stencil": 6, "layout": 8}


def test_every_operator_and_dtype_has_20_cases() -> None:
    pairs = [(operator, dtype) for operator in OURS for dtype in operator.config.dtypes]
    assert len(pairs) == 110
    assert {len(operator.config.cases(dtype)) for operator, dtype in pairs} == {20}


def test_every_operator_has_three_to_eight_edge_cases() -> None:
    counts = {
        operator.name: max(len(operator.config.cases(dtype, "edge")) for dtype in operator.config.dtypes)
        for operator in OURS
    }
    assert {name: count for name, count in counts.items() if not 3 <= count <= 8} == {}


def test_every_operator_is_written_in_pytorch_triton_and_cutile() -> None:
    written = {(kernel.folder, kernel.backend) for kernel in installed().kernels}
    for operator in OURS:
        assert {(operator.folder, backend) for backend in ("torch", "triton", "cutile")} <= written, operator.name


def test_options_that_a_kernel_hands_on_are_tried_by_a_call() -> None:
    pytest.importorskip("tilelang")
    operator = installed().operators["conv2d"]
    case = operator.config.cases("fp16")[0]
    source = installed().kernel(operator, "tilelang")
    kernel, inputs = source.load(), operator.load().inputs(case, UnfilledDraw())
    assert any(p.kind is p.VAR_KEYWORD for p in signature(kernel.run).parameters.values())
    tilelang, torch = (installed().backend(name).value() for name in ("tilelang", "torch"))
    _check_call(tilelang, kernel, inputs, kernel.default(case))
    with pytest.raises(TypeError, match="unexpected keyword argument 'ROWS'"):
        _check_call(tilelang, kernel, inputs, {**kernel.default(case), "ROWS": 1})
    with pytest.raises(AssertionError, match="torch cannot try without a compiler: name the options"):
        _check_call(torch, kernel, inputs, kernel.default(case))
