"""What a model is told about an operator, generated from the operator's own docstring, configuration and reference.

Nothing here is written by hand but sentences that hold for every operator, and the sizes of the examples: a changed
operator has a changed description.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tilebench_core.case import Case
from tilebench_core.definition import Draw
from tilebench_core.dtypes import name_of
from tilebench_core.llm.examples import EXAMPLES, Example
from tilebench_core.packs import Operator
from tilebench_core.precompile.unfilled import UnfilledDraw
from tilebench_core.registry import installed
from tilebench_core.tolerance import DEFAULT_TOLERANCES, Tolerance
from tilebench_core.verify.compare import as_outputs

if TYPE_CHECKING:
    import torch

__all__ = ["describe", "example_inputs", "parameter_domain"]

SEED = 11
DIGITS = 5
LONGEST = 300  # elements of a tensor that is written out

_CONTRACT = """\
`run` is called with these arguments, positionally. Tensors are contiguous and must not be written to. Plain values are
those of the case; between two calls of a case only the contents of the tensors change. The results are fresh, contiguous
tensors with the shapes and dtypes below."""

_PRECISION = {
    "fp32": "full fp32 arithmetic",
    "tf32": "fp32 operands of products may be rounded to TF32, sums are fp32",
    "fp16": "fp16 operands, fp32 arithmetic, rounded once",
    "bf16": "bf16 operands, fp32 arithmetic, rounded once",
    "fp8": "fp8 operands, fp32 sums, rounded once with saturation",
    "int8": "int8 operands, exact int32 sums",
    "exact": "exact",
}


def describe(operator: Operator) -> str:
    """The description of `operator` as Markdown: definition, tensors, contract, domain, tolerance, a worked example."""
    config = operator.config
    kinds = {dtype: config.cases(dtype, "smoke")[0] for dtype in config.dtypes}
    results = {dtype: _outputs(operator, example_inputs(operator, dtype)) for dtype in config.dtypes}
    head = f"# {operator.name}: {config.raw.get('description', config.category)}"
    return "\n\n".join(
        [
            head,
            f"## Definition\n\n{_docstring(operator)}",
            f"## Arguments and results\n\n{_CONTRACT}\n\n{_arguments(operator, kinds)}\n\n{_results(operator)}",
            f"## Parameter domain\n\n{parameter_domain(operator)}",
            f"## Tolerance\n\n{_tolerances(operator, results)}",
            f"## Work\n\n{_work(operator)}",
            f"## Worked example\n\n{_example(operator, config.dtypes[0])}\n",
        ]
    )


def parameter_domain(operator: Operator) -> str:
    """The parameters' values as Markdown: the grid, the values that are fixed on it, and the edge cases."""
    raw = operator.config.raw
    lines = [f"- dtype: {', '.join(operator.config.dtypes)}"]
    if raw.get("case_preset", "case_grid") == "case_grid":
        lines += [f"- {name}: {_values(values)}" for name, values in operator.config.axes.items()]
        made = "every combination"
    else:
        lines += [f"- {_parameters(row)}" for row in raw["test_cases"]]
        made = "each line"
    defaults = raw.get("case_defaults") or {}
    if defaults:
        lines.append(f"- fixed: {_parameters(defaults)}")
    count = len(operator.config.cases(operator.config.dtypes[0]))
    lines.append(f"\nTimed cases: {made}, {count} per dtype.")
    edges = [_parameters(row) for row in raw.get("edge_cases") or []]
    if edges:
        lines.append(f"Cases off the grid, which a correct kernel computes too: {'; '.join(edges)}.")
    return "\n".join(lines)


def example_inputs(operator: Operator, dtype: str) -> tuple[Any, ...]:
    """The arguments of the worked example in `dtype`, on the CPU; floating values are rounded to the example's step."""
    import torch

    example = EXAMPLES.get(operator.name) or Example(operator.config.cases(dtype, "smoke")[0].params)
    params = {**(operator.config.raw.get("case_defaults") or {}), **example.params}
    drawn = operator.load().inputs(Case(operator.name, dtype, params, "smoke"), Draw("cpu", SEED))
    return tuple(
        _rounded(value, example) if isinstance(value, torch.Tensor) and value.is_floating_point() else value
        for value in drawn
    )


def _rounded(value: torch.Tensor, example: Example) -> torch.Tensor:
    # Adding 0 turns -0 into 0, which reads better.
    return (((value.double() / example.step).round() * example.step) + 0.0).to(value.dtype)


def _docstring(operator: Operator) -> str:
    return inspect.cleandoc(import_module(operator.module).__doc__ or "")


def _baseline(operator: Operator) -> Any:
    return installed().kernel(operator, "torch").load().run


def _outputs(operator: Operator, inputs: Sequence[Any]) -> tuple[torch.Tensor, ...]:
    reference = operator.load().reference or _baseline(operator)
    results: tuple[torch.Tensor, ...] = as_outputs(reference(*inputs))
    return results


def _names(operator: Operator, count: int) -> list[str]:
    """The names of the arguments: those of the PyTorch implementation, which every kernel shares."""
    names = [parameter.name for parameter in inspect.signature(_baseline(operator)).parameters.values()]
    return [names[index] if index < len(names) else f"argument_{index}" for index in range(count)]


class _ShapeDraw(UnfilledDraw):
    """Draws tensors without storage, so that the shapes of the largest case cost nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.device = self._torch.device("meta")

    def _empty(self, shape: Sequence[int], dtype: Any) -> torch.Tensor:
        empty: torch.Tensor = self._torch.empty(shape, dtype=self._dtype(dtype), device="meta")
        return empty


def _shape(tensor: torch.Tensor) -> str:
    return str(list(tensor.shape))


def _arguments(operator: Operator, smoke: Mapping[str, Case]) -> str:
    import torch

    dtypes = list(smoke)
    largest = operator.config.largest(dtypes[0])
    drawn = {dtype: operator.load().inputs(smoke[dtype], _ShapeDraw()) for dtype in dtypes}
    small, large = drawn[dtypes[0]], operator.load().inputs(largest, _ShapeDraw())
    lines = [
        f"| argument | type | small case ({smoke[dtypes[0]].label}) | largest case ({largest.label}) |",
        "|---|---|---|---|",
    ]
    for index, name in enumerate(_names(operator, len(small))):
        if isinstance(small[index], torch.Tensor):
            found = [name_of(drawn[dtype][index].dtype) for dtype in dtypes]
            kind = "the case's dtype" if found == dtypes and len(dtypes) > 1 else ", ".join(dict.fromkeys(found))
            lines.append(f"| `{name}` | tensor, {kind} | {_shape(small[index])} | {_shape(large[index])} |")
        else:
            lines.append(f"| `{name}` | {type(small[index]).__name__} | {small[index]} | {large[index]} |")
    return "\n".join(lines)


def _results(operator: Operator) -> str:
    dtype = operator.config.dtypes[0]
    case = operator.config.cases(dtype, "smoke")[0]
    found = _outputs(operator, operator.load().inputs(case, Draw("cpu", SEED)))
    each = ", ".join(f"{_shape(output)} {name_of(output.dtype)}" for output in found)
    count = "one tensor" if len(found) == 1 else f"a tuple of {len(found)} tensors"
    return f"Returns {count}; for the small case in {dtype}: {each}."


def _values(values: Sequence[Any]) -> str:
    whole = all(isinstance(value, int) for value in values)
    steps = {b - a for a, b in pairwise(values)} if whole else set()
    if len(values) > 5 and len(steps) == 1:
        return f"{values[0]}, {values[1]}, ..., {values[-1]} ({len(values)} values, {steps.pop()} apart)"
    return ", ".join(map(str, values))


def _parameters(row: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in row.items())


def _tolerances(operator: Operator, results: Mapping[str, tuple[torch.Tensor, ...]]) -> str:
    lines = []
    for dtype, outputs in results.items():
        bounds = [_bound(operator, name_of(output.dtype)) for output in outputs]
        alike = len(set(bounds)) == 1
        told = bounds[0] if alike else "; ".join(f"output {i}: {bound}" for i, bound in enumerate(bounds))
        lines.append(f"- {dtype} ({_PRECISION[operator.config.precision(dtype)]}): {told}")
    return "\n".join(lines)


def _bound(operator: Operator, dtype: str) -> str:
    """The bound on |got - want|, as the operator's file states it: it may depend on the case."""
    stated = (operator.config.raw.get("verify") or {}).get(dtype)
    if stated is None:
        default = DEFAULT_TOLERANCES.get(dtype, Tolerance())
        stated = {"atol": default.atol, "rtol": default.rtol, "ulp": default.ulp}
    if stated.get("ulp"):
        return f"{dtype} within {stated['ulp']} unit in the last place"
    atol, rtol = stated.get("atol", 0), stated.get("rtol", 0)
    if not atol and not rtol:
        return f"{dtype} exactly equal"
    scale = " · (root mean square of want's row)" if stated.get("scale") == "row_rms" else ""
    return f"{dtype} with |got - want| <= {atol}{scale} + {rtol} · |want|"


def _work(operator: Operator) -> str:
    config, largest = operator.config, operator.config.largest(operator.config.dtypes[0])
    metrics = config.raw["metrics"]
    rate = "tensor-core" if config.mode == "matrix" else "fp32 vector"
    return (
        f"Operations F = `{metrics['flops_expr'].strip()}`, compulsory bytes Q = `{metrics['bytes_expr'].strip()}`; "
        f"the roofline time is max(F / {rate} rate, Q / memory bandwidth). "
        f"For {largest.label} in {largest.dtype}: F = {config.flops(largest):.4g}, Q = {config.bytes(largest):.4g}."
    )


def _nested(value: Any, exact: bool) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_nested(item, exact) for item in value) + "]"
    return f"{value:.{DIGITS}g}" if isinstance(value, float) and not exact else repr(value)


def _literal(tensor: torch.Tensor, exact: bool) -> str:
    """A tensor as nested lists: inputs exactly, results to DIGITS digits; `...` for one of more than LONGEST elements."""
    if tensor.numel() > LONGEST:
        return "..."
    # Inputs are multiples of a step of at least 1e-6, so seven decimals hold all of a value of any dtype.
    wide = tensor.double().mul(1e7).round().div(1e7) if tensor.is_floating_point() and exact else tensor
    return _nested(wide.float().tolist() if wide.is_floating_point() and not exact else wide.tolist(), exact)


def _example(operator: Operator, dtype: str) -> str:
    import torch

    inputs = example_inputs(operator, dtype)
    names = _names(operator, len(inputs))
    lines = ["```python"]
    for name, value in zip(names, inputs, strict=True):
        if isinstance(value, torch.Tensor):
            lines.append(f"{name} = {_literal(value, exact=True)}  # {_shape(value)} {name_of(value.dtype)}")
        else:
            lines.append(f"{name} = {value!r}")
    lines.append(f"# run({', '.join(names)}) returns, to {DIGITS} digits:")
    for index, output in enumerate(_outputs(operator, inputs)):
        lines.append(f"result_{index} = {_literal(output, exact=False)}  # {_shape(output)} {name_of(output.dtype)}")
    note = EXAMPLES[operator.name].note if operator.name in EXAMPLES else ""
    return "\n".join([*lines, "```", *([note] if note else [])])
