"""An operator's `config.yaml`: its grid of cases, tolerances and work counts.

The layout is the published one: `benchmark`, `case_grid`, `test_cases`, `case_preset`, `case_defaults`, `dtypes`,
`edge_cases`, `smoke`, `verify`, `metrics`, and beside them `name`, `category`, `origin` and `precision`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tilebench_core.case import Case
from tilebench_core.dtypes import DTYPES
from tilebench_core.errors import ConfigError, nearest
from tilebench_core.expressions import evaluate, number
from tilebench_core.tolerance import DEFAULT_TOLERANCES, Tolerance

__all__ = ["CATEGORIES", "PLOTS", "PRECISIONS", "OperatorConfig", "load_yaml", "parse_operator_config"]

CATEGORIES = ("pointwise", "reduction", "matmul", "stencil", "layout")
PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "fp8", "int8", "exact")
PLOTS = ("latency", "speedup", "bandwidth", "bandwidth_share", "tflops", "roofline")
MODES = ("matrix", "vector")

_KEYS = {
    "name", "category", "origin", "description", "benchmark", "case_grid", "test_cases", "case_preset", "case_defaults",
    "dtypes", "edge_cases", "smoke", "verify", "precision", "metrics",
}  # fmt: skip
_BENCHMARK_KEYS = {"warmup": int, "repeat": int, "use_cuda_graph": bool, "flush_l2": bool}
_METRIC_KEYS = {"flops_expr", "bytes_expr", "mode", "plots"}
_TOLERANCE_KEYS = {"atol", "rtol", "ulp", "scale"}
_PRECISION_OF = {"fp32": "fp32", "fp16": "fp16", "bf16": "bf16", "fp8_e4m3": "fp8"}


@dataclass(frozen=True)
class OperatorConfig:
    """A checked `config.yaml`. `where` names the file in errors; `raw` is the mapping as it was read or composed."""

    name: str
    where: str
    raw: Mapping[str, Any]

    @property
    def category(self) -> str:
        """One of CATEGORIES."""
        return str(self.raw["category"])

    @property
    def origin(self) -> str:
        """The collection whose task inspired the operator, e.g. "TritonBench"."""
        return str(self.raw["origin"])

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The dtypes that the operator is benchmarked in."""
        return tuple(self.raw["dtypes"])

    @property
    def mode(self) -> str:
        """Which peak bounds its arithmetic: "matrix" (the tensor cores' rate of the dtype) or "vector"."""
        return str(self.raw["metrics"].get("mode", "vector"))

    @property
    def plots(self) -> tuple[str, ...]:
        """The figures that are drawn for this operator."""
        return tuple(self.raw["metrics"].get("plots", PLOTS))

    @property
    def benchmark(self) -> Mapping[str, Any]:
        """The operator's own wishes for timing: any of warmup, repeat, use_cuda_graph, flush_l2."""
        return self.raw.get("benchmark") or {}

    def precision(self, dtype: str) -> str:
        """The precision class of results in `dtype`: one of PRECISIONS."""
        return str((self.raw.get("precision") or {}).get(dtype, _PRECISION_OF.get(dtype, "exact")))

    def cases(self, dtype: str, kind: str = "grid") -> tuple[Case, ...]:
        """The cases of `dtype`: the timed "grid", the verified-only "edge" cases, or the "smoke" case."""
        return tuple(
            Case(self.raw["name"], dtype, params, kind, index)
            for index, params in enumerate(self._params(kind))
            if dtype in params.get("dtypes", (dtype,))
        )

    def _params(self, kind: str) -> list[Mapping[str, Any]]:
        defaults = self.raw.get("case_defaults") or {}
        if kind == "smoke":
            rows = [self.raw["smoke"]]
        elif kind == "edge":
            rows = list(self.raw.get("edge_cases") or [])
        elif self.raw.get("case_preset", "case_grid") == "test_cases":
            rows = list(self.raw["test_cases"])
        else:
            rows = self._grid()
        return [{**defaults, **row} for row in rows]

    @property
    def axes(self) -> dict[str, list[Any]]:
        """The values of each parameter of `case_grid`, with expressions evaluated."""
        return {name: self._axis(name, values) for name, values in (self.raw.get("case_grid") or {}).items()}

    def _grid(self) -> list[Mapping[str, Any]]:
        axes = self.axes
        return [dict(zip(axes, point, strict=True)) for point in itertools.product(*axes.values())]

    def _axis(self, name: str, values: Any) -> list[Any]:
        where = f"{self.where}: case_grid.{name}"
        if isinstance(values, Mapping) and set(values) == {"expr"}:
            values = evaluate(str(values["expr"]), self.raw.get("case_defaults") or {}, where)
        if not isinstance(values, (list, tuple)) or not values:
            raise ConfigError(
                f'{where}: {values!r} is no list; expected values such as [512, 1024] or {{expr: "range(1, 21)"}}'
            )
        return list(values)

    def _names(self, case: Case) -> dict[str, Any]:
        return {**case.params, "dtype_size": case.dtype_size}

    def flops(self, case: Case) -> float:
        """Floating-point (or integer) operations that the case takes."""
        return number(self.raw["metrics"]["flops_expr"], self._names(case), f"{self.where}: metrics.flops_expr")

    def bytes(self, case: Case) -> float:
        """Compulsory bytes: each input read once and each output written once."""
        return number(self.raw["metrics"]["bytes_expr"], self._names(case), f"{self.where}: metrics.bytes_expr")

    def tolerance(self, case: Case, output_dtype: str) -> Tolerance:
        """The tolerance for an output of `output_dtype`: this file's, or the default of that dtype."""
        wanted = (self.raw.get("verify") or {}).get(output_dtype)
        if wanted is None:
            return DEFAULT_TOLERANCES.get(output_dtype, Tolerance())
        where, names = f"{self.where}: verify.{output_dtype}", self._names(case)
        return Tolerance(
            atol=number(wanted.get("atol", 0), names, where),
            rtol=number(wanted.get("rtol", 0), names, where),
            ulp=int(wanted.get("ulp", 0)),
            scale=str(wanted.get("scale", "none")),
        )

    def largest(self, dtype: str) -> Case:
        """The case whose every swept parameter is at its maximum."""
        return self.cases(dtype)[-1]


def load_yaml(path: Path) -> Any:
    """Read a YAML file; raise ConfigError with file and line if it is malformed."""
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError(f"{path}{line}: not valid YAML: {error.problem or error.context}") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error


def _line_of(where: str, key: str) -> str:
    """Return `file:line` of a top-level key, for messages; `where` unchanged if it names no file."""
    path = Path(where)
    if path.is_file():
        for count, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if line.startswith(f"{key}:"):
                return f"{where}:{count}"
    return where


def _require(condition: bool, where: str, key: str, message: str) -> None:
    if not condition:
        raise ConfigError(f"{_line_of(where, key)}: {key}: {message}")


def _require_known(name: Any, known: Iterable[str], where: str, key: str, what: str) -> None:
    """Like `_require`, with the nearest match, which is only looked for when it is needed."""
    if name not in known:
        raise ConfigError(f"{_line_of(where, key)}: {key}: {what}.{nearest(str(name), known)}")


def parse_operator_config(raw: Any, where: str, name: str) -> OperatorConfig:
    """Check `raw` and return it as an OperatorConfig; raise ConfigError with the file, the key and what was expected."""
    if not isinstance(raw, Mapping):
        raise ConfigError(f"{where}: expected a mapping with the keys {', '.join(sorted(_KEYS))}")
    for key in raw:
        _require_known(key, _KEYS, where, str(key), "unknown key")
    for key in ("name", "category", "origin", "dtypes", "smoke", "metrics"):
        _require(key in raw, where, key, "missing")
    _require(
        raw["category"] in CATEGORIES,
        where,
        "category",
        f"{raw['category']!r}; expected one of {', '.join(CATEGORIES)}",
    )
    _require(
        isinstance(raw["dtypes"], (list, tuple)) and len(raw["dtypes"]) > 0,
        where,
        "dtypes",
        f"expected a list of {', '.join(DTYPES)}",
    )
    for dtype in raw["dtypes"]:
        _require_known(dtype, DTYPES, where, "dtypes", f"unknown dtype {dtype!r}; expected some of {', '.join(DTYPES)}")
    _check_cases(raw, where)
    _check_benchmark(raw.get("benchmark") or {}, where)
    _check_verify(raw.get("verify") or {}, where)
    _check_metrics(raw["metrics"], where)
    for dtype, precision in (raw.get("precision") or {}).items():
        _require(
            precision in PRECISIONS,
            where,
            "precision",
            f"{dtype}: {precision!r}; expected one of {', '.join(PRECISIONS)}",
        )
    config = OperatorConfig(name, where, raw)
    # An expression that has no value is found here, not in the middle of a campaign.
    _ = config.axes
    for case in config.cases(config.dtypes[0], "smoke"):
        _ = config.flops(case), config.bytes(case), [config.tolerance(case, dtype) for dtype in raw.get("verify") or {}]
    return config


def _check_cases(raw: Mapping[str, Any], where: str) -> None:
    preset = raw.get("case_preset", "case_grid")
    _require(
        preset in ("case_grid", "test_cases"), where, "case_preset", f"{preset!r}; expected case_grid or test_cases"
    )
    _require(bool(raw.get(preset)), where, preset, "missing or empty; it holds the timed cases")
    if preset == "case_grid":
        _require(isinstance(raw["case_grid"], Mapping), where, "case_grid", "expected parameter: values")
    for key in ("edge_cases", "test_cases"):
        rows = raw.get(key) or []
        _require(
            isinstance(rows, (list, tuple)) and all(isinstance(row, Mapping) for row in rows),
            where, key, "expected a list of mappings, each one case",
        )  # fmt: skip
    _require(isinstance(raw["smoke"], Mapping), where, "smoke", "expected one mapping, the smallest useful case")


def _check_benchmark(benchmark: Mapping[str, Any], where: str) -> None:
    for key, value in benchmark.items():
        _require_known(key, _BENCHMARK_KEYS, where, "benchmark", f"unknown key {key!r}")
        wanted = _BENCHMARK_KEYS[key]
        _require(type(value) is wanted, where, "benchmark", f"{key}: {value!r}; expected {wanted.__name__}")


def _check_verify(verify: Mapping[str, Any], where: str) -> None:
    for dtype, tolerance in verify.items():
        _require_known(dtype, DTYPES, where, "verify", f"unknown output dtype {dtype!r}")
        _require(
            isinstance(tolerance, Mapping) and set(tolerance) <= _TOLERANCE_KEYS,
            where, "verify", f"{dtype}: {tolerance!r}; expected a mapping with {', '.join(sorted(_TOLERANCE_KEYS))}",
        )  # fmt: skip


def _check_metrics(metrics: Any, where: str) -> None:
    _require(isinstance(metrics, Mapping), where, "metrics", "expected a mapping")
    for key in metrics:
        _require_known(key, _METRIC_KEYS, where, "metrics", f"unknown key {key!r}")
    for key in ("flops_expr", "bytes_expr"):
        _require(key in metrics, where, "metrics", f"{key} is missing")
    _require(
        metrics.get("mode", "vector") in MODES,
        where,
        "metrics",
        f"mode: {metrics.get('mode')!r}; expected one of {', '.join(MODES)}",
    )
    for plot in metrics.get("plots", ()):
        _require(plot in PLOTS, where, "metrics", f"unknown plot {plot!r}; expected some of {', '.join(PLOTS)}")
