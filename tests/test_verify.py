"""Verification: each property is a check of its own, and its message names expected and actual."""

from __future__ import annotations

import re

import pytest
import torch

from tilebench_core.case import Case
from tilebench_core.definition import Definition, Draw
from tilebench_core.tolerance import DEFAULT_TOLERANCES, Tolerance
from tilebench_core.verify import compare_outputs, first_difference, precision_state, prepare_case, verify_launch
from tilebench_core.verify.protocol import poison, poisoned_allocations

CASE = Case("scale", "fp32", {"n": 64})
EXPECTED = torch.arange(1.0, 13.0).reshape(3, 4)


def compared(actual, expected=EXPECTED, inputs=(), tolerance=None):
    wanted = expected if isinstance(expected, tuple) else (expected,)
    return compare_outputs(
        actual, wanted, inputs, lambda dtype: tolerance or DEFAULT_TOLERANCES.get(dtype, Tolerance())
    )


def changed(index, value, expected=EXPECTED):
    other = expected.clone()
    other[index] = value
    return other


@pytest.mark.parametrize(
    ("actual", "check", "message"),
    [
        ((EXPECTED.clone(), EXPECTED.clone()), "count", "returned 2 outputs, expected 1"),
        ((), "count", "returned 0 outputs, expected 1"),
        (None, "type", "output is a NoneType, expected a tensor"),
        (EXPECTED.numpy(), "type", "output is a ndarray, expected a tensor"),
        (EXPECTED[:2].clone(), "shape", "output has shape [2, 4], expected [3, 4]"),
        (EXPECTED.double(), "dtype", "output has dtype float64, expected fp32"),
        (EXPECTED.half(), "dtype", "output has dtype fp16, expected fp32"),
        (EXPECTED.to("meta"), "device", "output has device meta, expected cpu"),
        (EXPECTED.T.contiguous().T, "contiguity", "output has strides [1, 3], expected a contiguous tensor"),
    ],
)
def test_what_is_not_the_right_kind_of_result_is_said_before_its_values(actual, check, message):
    found = compared(actual)
    assert (found.check, found.message, found.passed) == (check, message, False)


def test_equal_values_pass_with_no_error():
    found = compared(EXPECTED.clone())
    assert (found.passed, found.max_abs_err, found.max_rel_err, found.failing_share) == (True, 0.0, 0.0, 0.0)


def test_a_wrong_value_is_reported_with_place_both_values_tolerance_and_share():
    found = compared(changed((2, 3), 13.0))
    assert found.check == "values"
    assert found.message.startswith("output[2, 3] is 13, expected 12; allowed Tolerance(atol=1e-05, rtol=1.3e-06")
    assert found.message.endswith("8.33% of the elements fail")
    assert (found.worst, found.max_abs_err, found.failing_share) == ("output[2, 3]", 1.0, pytest.approx(1 / 12))
    assert found.max_rel_err == pytest.approx(1 / 12)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_value_that_is_not_finite_is_a_check_of_its_own(value):
    found = compared(changed((0, 1), value))
    assert found.check == "non-finite"
    assert found.message == (
        f"output[0, 1] is {value:.9g}, expected 2; 8.33% of the elements are finite in one only; 8.33% of the elements fail"
    )
    assert found.max_abs_err == 0.0  # an infinite error would say nothing


def test_an_infinity_that_is_expected_has_to_be_the_same_one():
    expected = changed((0, 0), float("inf"))
    assert compared(expected.clone(), expected).passed
    assert not compared(changed((0, 0), float("-inf"), expected), expected).passed
    assert not compared(changed((0, 0), 3e38, expected), expected).passed


def test_of_several_outputs_the_wrong_one_is_named():
    found = compared((EXPECTED.clone(), changed((1, 0), 0.0)), (EXPECTED, EXPECTED))
    assert found.message.startswith("output 1[1, 0] is 0, expected 5")


def test_an_output_in_the_memory_of_an_input_is_aliasing_also_as_a_view():
    x = torch.zeros(24)
    x[12:] = EXPECTED.flatten()
    found = compared(x[12:].view(3, 4), inputs=(1, x))
    assert (found.check, found.message) == ("aliasing", "output shares its memory with input 1, expected its own")
    assert compared(EXPECTED.clone(), inputs=(1, x)).passed


@pytest.mark.parametrize(
    ("dtype", "expected", "actual", "message"),
    [
        (torch.int32, 5, 6, r"output\[1\] is 6, expected 5; 50.00% of the elements differ"),
        (torch.int64, 2**60, 2**60 + 1, rf"output\[1\] is {2**60 + 1}, expected {2**60}; 50.00%"),
        (torch.bool, True, False, r"output\[1\] is False, expected True"),
        (torch.uint8, 0, 255, r"output\[1\] is 255, expected 0"),
        (torch.int8, 127, -128, r"output\[1\] is -128, expected 127"),
    ],
)
def test_integers_have_to_be_equal(dtype, expected, actual, message):
    right = torch.tensor([0, expected], dtype=dtype)
    assert compared(right.clone(), right).passed
    assert re.match(message, compared(torch.tensor([0, actual], dtype=dtype), right).message)


def test_a_tolerance_may_count_units_in_the_last_place():
    right = torch.tensor([1.0, 2.0, 0.0]).to(torch.float8_e4m3fn)
    bits = right.view(torch.uint8).clone()
    bits[1] += 1
    assert compared(bits.view(torch.float8_e4m3fn), right, tolerance=Tolerance(ulp=1)).passed
    bits[1] += 1
    assert not compared(bits.view(torch.float8_e4m3fn), right, tolerance=Tolerance(ulp=1)).passed


def test_a_tolerance_may_follow_the_size_of_each_row():
    expected = torch.tensor([[1000.0, 1000.0], [1.0, 1.0]])
    tolerance = Tolerance(atol=1e-3, scale="row_rms")
    assert compared(changed((0, 0), 1000.9, expected), expected, tolerance=tolerance).passed
    assert not compared(changed((1, 0), 1.01, expected), expected, tolerance=tolerance).passed


def test_an_exact_tolerance_allows_nothing():
    assert not compared(changed((0, 0), 1.0000001), tolerance=Tolerance()).passed


def test_no_elements_cannot_be_wrong():
    assert compared(torch.zeros(0, 4), torch.zeros(0, 4)).passed


def prepared_case(reference=lambda x: 2 * x, dtype="fp32"):
    definition = Definition(inputs=lambda case, draw: (draw.values(case["n"], dtype=dtype), 3))
    case = Case("scale", dtype, {"n": 64})
    return prepare_case(case, definition, lambda x, factor: reference(x), lambda name: Tolerance(1e-5, 1e-5), "cpu", 0)


def test_inputs_are_refilled_in_place_with_new_values():
    prepared = prepared_case()
    pointer = prepared.inputs[0].data_ptr()
    first = prepared.inputs[0].clone()
    prepared.refill(1)
    assert prepared.inputs[0].data_ptr() == pointer
    assert not torch.equal(prepared.inputs[0], first)
    assert prepared.inputs[1] == 3
    prepared.refill(0)
    assert torch.equal(prepared.inputs[0], first)


def test_the_same_seed_draws_the_same_case_and_another_one_does_not():
    definition = Definition(inputs=lambda case, draw: (draw.normal(case["n"], dtype="fp32"),))
    values = [
        prepare_case(CASE, definition, lambda x: x.clone(), lambda name: Tolerance(), "cpu", seed).inputs[0]
        for seed in (0, 0, 1)
    ]
    assert torch.equal(values[0], values[1])
    assert not torch.equal(values[0], values[2])


def test_a_reference_works_on_its_own_copy_of_the_inputs():
    prepared = prepared_case(reference=lambda x: x.mul_(2))
    assert torch.allclose(prepared.expected[0][0], 2 * prepared.inputs[0])


def test_a_reference_that_is_not_finite_is_refused():
    with pytest.raises(ValueError, match="output 0 of the reference is not finite"):
        prepared_case(reference=lambda x: x / 0)


def verdict_of(kernel, **changes):
    prepared = prepared_case(**changes)
    return verify_launch(prepared, lambda: kernel(prepared.inputs[0]))


def test_a_right_kernel_passes():
    verdict = verdict_of(lambda x: x + x)
    assert (verdict.passed, verdict.check, verdict.message) == (True, None, None)
    assert verdict.comparison.max_abs_err == 0.0


def keeper(how):
    kept = {}

    def run(x):
        return kept.setdefault(how(x), 2 * x).clone()

    return run


def mutating(x):
    y = 2 * x
    x[-1] += 1
    return y


def unwritten(x):
    y = torch.empty_like(x)
    y[:-1] = 2 * x[:-1]
    return y


def reusing():
    buffer = torch.empty(64)

    def run(x):
        return torch.mul(x, 2, out=buffer)

    return run


@pytest.mark.parametrize(
    ("kernel", "check", "message"),
    [
        (lambda x: 3 * x, "values", "first run: output"),
        (lambda x: x.mul_(2), "aliasing", "first run: output shares its memory with input 0, expected its own"),
        (keeper(id), "stale", "the second run returned the result of the first, although the inputs hold new values"),
        (keeper(lambda x: x.data_ptr()), "stale", "the second run returned the result of the first"),
        (keeper(lambda x: x.shape), "stale", "the second run returned the result of the first"),
        (mutating, "mutation", "input 0 was written to; inputs are read-only"),
        (reusing(), "reuse", "the second run returned memory that the first had returned and that is still in use"),
    ],
    ids=["wrong", "in place", "by object", "by pointer", "by shape", "mutating", "one buffer"],
)
def test_two_runs_find_what_one_comparison_cannot(kernel, check, message):
    verdict = verdict_of(kernel)
    assert verdict.check == check
    assert verdict.message.startswith(message)


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "int32", "int8", "uint8"])
def test_an_output_that_is_not_written_shows_in_poisoned_memory(dtype):
    kernel = unwritten if dtype != "uint8" else lambda x: unwritten(x)
    verdict = verdict_of(kernel, dtype=dtype)
    assert verdict.check in ("values", "non-finite")


def test_a_kernel_that_is_wrong_only_for_new_values_is_told_so():
    calls = []

    def run(x):
        calls.append(x)
        return 2 * x if len(calls) == 1 else 3 * x

    verdict = verdict_of(run)
    assert verdict.message.startswith("second run, with new values in the same inputs and poisoned memory: output")


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.int8, torch.int64]
)
def test_poison_is_what_no_result_could_be(dtype):
    output = torch.zeros(4).to(dtype)
    poison(output)
    if dtype.is_floating_point:
        assert output.float().isnan().all()
    else:
        assert (output == torch.iinfo(dtype).max).all()


def test_memory_is_poisoned_inside_only_and_the_switches_are_put_back():
    before = torch.get_deterministic_debug_mode(), torch.utils.deterministic.fill_uninitialized_memory
    with poisoned_allocations():
        assert torch.empty(1000).isnan().all()
        assert (torch.empty(1000, dtype=torch.int32) == torch.iinfo(torch.int32).max).all()
    assert (torch.get_deterministic_debug_mode(), torch.utils.deterministic.fill_uninitialized_memory) == before


@pytest.mark.parametrize(("precision", "allowed"), [("tf32", True), ("fp32", False), ("fp16", False)])
def test_tf32_is_on_for_its_class_only_and_restored(precision, allowed):
    before = torch.backends.cuda.matmul.allow_tf32
    with precision_state(precision):
        assert torch.backends.cuda.matmul.allow_tf32 is allowed
        assert torch.backends.cudnn.allow_tf32 is allowed
    assert torch.backends.cuda.matmul.allow_tf32 is before


def test_a_kernel_that_switches_tf32_is_caught_and_undone():
    before = torch.backends.cuda.matmul.allow_tf32
    with pytest.raises(RuntimeError, match="TF32 switches were changed"), precision_state("fp32"):
        torch.backends.cuda.matmul.allow_tf32 = True
    assert torch.backends.cuda.matmul.allow_tf32 is before


def test_inputs_are_compared_bit_by_bit():
    nan = torch.tensor([float("nan"), 0.0])
    assert first_difference((nan, 5), (nan.clone(), 5)) is None
    assert first_difference((nan,), (torch.tensor([float("nan"), -0.0]),)) == 0


def test_draws_are_contiguous_and_of_the_case():
    draw = Draw("cpu", 1)
    assert draw.normal(3, 4, dtype="fp8_e4m3").dtype is torch.float8_e4m3fn
    assert set(draw.integers(1000, dtype="int32", low=-1, high=1).tolist()) == {-1, 0, 1}
    assert sorted(draw.permutation(10).tolist()) == list(range(10))
    values = draw.uniform(1000, dtype="fp32", low=2.0, high=3.0)
    assert 2.0 <= float(values.min()) <= float(values.max()) < 3.0
