"""An operator's config.yaml: the published layout in full, and every mistake in it with its file and line."""

from __future__ import annotations

import pytest
import yaml

from tilebench_core.errors import ConfigError, TilebenchError
from tilebench_core.operator_config import load_yaml, parse_operator_config
from tilebench_core.tolerance import Tolerance

FULL = """\
name: row_scale
category: reduction
origin: own
description: every key of the published layout
benchmark: {warmup: 3, repeat: 7, use_cuda_graph: false, flush_l2: true}
dtypes: [fp16, fp32]
case_defaults: {cols: 64}
case_preset: case_grid
case_grid:
  rows: {expr: "[2 ** i for i in range(3, 6)]"}
  group: [1, 2]
test_cases:
  - {rows: 5, group: 1}
edge_cases:
  - {rows: 1, group: 1}
  - {rows: 3, group: 1, cols: 1, dtypes: [fp32]}
smoke: {rows: 2, group: 1}
verify:
  fp16: {atol: "1e-3 * cols", rtol: 1.0e-3, scale: row_rms}
precision: {fp32: tf32}
metrics:
  flops_expr: 5 * rows * cols
  bytes_expr: 2 * rows * cols * dtype_size
  mode: matrix
  plots: [latency, speedup]
"""


def parsed(text: str = FULL, where: str = "here", **changes):
    return parse_operator_config({**yaml.safe_load(text), **changes}, where, "row_scale")


def test_the_grid_is_the_product_of_its_axes_in_their_order():
    config = parsed()
    assert config.axes == {"rows": [8, 16, 32], "group": [1, 2]}
    assert [dict(case.params) for case in config.cases("fp16")][:3] == [
        {"cols": 64, "rows": 8, "group": 1}, {"cols": 64, "rows": 8, "group": 2}, {"cols": 64, "rows": 16, "group": 1},
    ]  # fmt: skip
    assert config.largest("fp16").params == {"cols": 64, "rows": 32, "group": 2}
    assert [case.index for case in config.cases("fp16")] == list(range(6))


def test_a_preset_takes_the_listed_cases_instead_of_the_grid():
    assert [case.params["rows"] for case in parsed(case_preset="test_cases").cases("fp16")] == [5]


def test_edge_cases_may_name_the_dtypes_they_are_for():
    config = parsed()
    assert [case.params["rows"] for case in config.cases("fp16", "edge")] == [1]
    assert [case.params["cols"] for case in config.cases("fp32", "edge")] == [64, 1]
    assert config.cases("fp16", "smoke")[0].kind == "smoke"


def test_work_is_counted_by_formulas_over_the_case():
    config = parsed()
    case = config.cases("fp16")[0]
    assert (config.flops(case), config.bytes(case)) == (5 * 8 * 64, 2 * 8 * 64 * 2)
    assert config.bytes(config.cases("fp32")[0]) == 2 * 8 * 64 * 4


def test_tolerances_are_the_files_or_those_of_the_outputs_dtype():
    config = parsed()
    case = config.cases("fp16")[0]
    assert config.tolerance(case, "fp16") == Tolerance(atol=0.064, rtol=1e-3, scale="row_rms")
    assert config.tolerance(case, "fp32") == Tolerance(1e-5, 1.3e-6)
    assert config.tolerance(case, "int32").is_exact


def test_a_precision_class_belongs_to_every_dtype():
    config = parsed()
    assert (config.precision("fp32"), config.precision("fp16"), config.precision("int8")) == ("tf32", "fp16", "exact")
    assert (config.mode, config.plots, config.benchmark["repeat"]) == ("matrix", ("latency", "speedup"), 7)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "category: reduction",
            "category: reductoin",
            r"config.yaml:2: category: 'reductoin'; expected one of pointwise",
        ),
        ("edge_cases:", "egde_cases:", r"config.yaml:14: egde_cases: unknown key. Did you mean 'edge_cases'\?"),
        ("origin: own\n", "", r"config.yaml: origin: missing"),
        ("dtypes: [fp16, fp32]", "dtypes: []", r"config.yaml:6: dtypes: expected a list"),
        (
            "dtypes: [fp16, fp32]",
            "dtypes: [fp61]",
            r"config.yaml:6: dtypes: unknown dtype 'fp61'; .* Did you mean 'fp16'\?",
        ),
        (
            "case_preset: case_grid",
            "case_preset: grid",
            r"config.yaml:8: case_preset: 'grid'; expected case_grid or test",
        ),
        ("smoke: {rows: 2, group: 1}", "smoke: [1]", r"config.yaml:17: smoke: expected one mapping"),
        ("warmup: 3", "warm_up: 3", r"config.yaml:5: benchmark: unknown key 'warm_up'. Did you mean 'warmup'\?"),
        ("repeat: 7", "repeat: many", r"config.yaml:5: benchmark: repeat: 'many'; expected int"),
        ("fp16: {atol", "f16: {atol", r"config.yaml:18: verify: unknown output dtype 'f16'. Did you mean 'fp16'\?"),
        (
            "scale: row_rms}",
            "scale: row_rms, tol: 1}",
            r"config.yaml:18: verify: fp16: .*expected a mapping with atol, rtol",
        ),
        ("fp32: tf32", "fp32: tf23", r"config.yaml:20: precision: fp32: 'tf23'; expected one of fp32, tf32"),
        ("  flops_expr: 5 * rows * cols\n", "", r"config.yaml:21: metrics: flops_expr is missing"),
        ("mode: matrix", "mode: tensor", r"config.yaml:21: metrics: mode: 'tensor'; expected one of matrix, vector"),
        ("plots: [latency", "plots: [latentcy", r"config.yaml:21: metrics: unknown plot 'latentcy'"),
        (
            "  flops_expr",
            "  flop_expr",
            r"config.yaml:21: metrics: unknown key 'flop_expr'. Did you mean 'flops_expr'\?",
        ),
        ("  - {rows: 5, group: 1}", "  - 5", r"config.yaml:12: test_cases: expected a list of mappings"),
    ],
)
def test_a_mistake_is_one_line_with_file_and_line(tmp_path, old, new, message):
    path = tmp_path / "config.yaml"
    assert old in FULL
    path.write_text(FULL.replace(old, new))
    with pytest.raises(TilebenchError, match=message) as caught:
        parse_operator_config(load_yaml(path), str(path), "row_scale")
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "line"), [("name: a\ncategory: [1, 2\norigin: x\n", 3), ("name: a\n\tcategory: b\n", 2), ("a: 'x\n", 2)]
)
def test_a_file_that_is_no_yaml_is_named_with_its_line(tmp_path, text, line):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=rf"config.yaml:{line}: not valid YAML: "):
        load_yaml(path)


@pytest.mark.parametrize("text", ["", "- a\n", "text\n"])
def test_a_file_that_holds_no_mapping_is_refused(text):
    with pytest.raises(ConfigError, match="expected a mapping with the keys"):
        parse_operator_config(yaml.safe_load(text), "here", "a")


def test_a_formula_that_fails_names_its_key():
    with pytest.raises(
        ConfigError, match=r"here: metrics.flops_expr: cannot evaluate '5 \* row'.*expected arithmetic over"
    ):
        parsed(metrics={"flops_expr": "5 * row", "bytes_expr": "1"})
    with pytest.raises(ConfigError, match=r"here: verify.fp16: cannot evaluate 'small'"):
        parsed(verify={"fp16": {"atol": "small"}})
    with pytest.raises(ConfigError, match=r"here: case_grid.rows: .* is no list"):
        parsed(case_grid={"rows": 5})
    with pytest.raises(ConfigError, match=r"here: case_grid.rows: cannot evaluate \"__import__"):
        parsed(case_grid={"rows": {"expr": "__import__('os')"}})
