"""Figures show what exists, in the same colours everywhere."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from synthetic import Shape, synthetic_records, troubled_records, write_campaign

from tilebench_core.analysis import Contestant, Peaks, view_of
from tilebench_core.figures import draw_figures, figures_of, looks
from tilebench_core.figures.ticks import human, log_ticks, spread, tick_label

SHAPE = Shape(operators=5, dtypes=("fp16",), cases=4, samples=3)
PEAKS = Peaks(bandwidth_gbps=4000.0)


def names(records, operator, peaks=PEAKS):
    view = view_of(records).only(operator=operator)
    return [figure.name for figure in figures_of(view, view.contestants, peaks)]


def test_importing_figures_loads_no_matplotlib():
    code = "import sys, tilebench_core.figures; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_each_figure_is_a_png_beside_the_records(tmp_path: Path):
    folder = write_campaign(tmp_path / "c", synthetic_records(replace(SHAPE, operators=1)))
    paths = draw_figures(folder, plots={"pointwise_00": ["latency", "roofline"]})
    assert paths == [folder / "figures/pointwise_00/fp16" / f"{name}.png" for name in ("latency", "roofline")]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)


def test_only_figures_whose_data_exist_are_made():
    records = synthetic_records(SHAPE)
    everything = ["latency", "speedup", "bandwidth", "bandwidth_share", "tflops", "roofline"]
    assert names(records, "pointwise_00") == everything
    assert names(records, "layout_04") == everything[:4]  # no arithmetic
    assert names(records, "pointwise_00", Peaks()) == [n for n in everything if n != "bandwidth_share"]
    unknown = [replace(record, roofline_us=None) for record in records]
    assert "roofline" not in names(unknown, "pointwise_00")
    alone = [record for record in records if record.backend == "torch"]
    assert "speedup" not in names(alone, "pointwise_00")
    assert names([r for r in records if r.outcome.is_failure], "pointwise_00") == []


def test_two_gpus_get_files_of_their_own(tmp_path: Path):
    records = [r for r in troubled_records() if r.operator == "pointwise_00" and r.dtype == "fp16"]
    folder = write_campaign(tmp_path / "c", records)
    paths = draw_figures(folder, plots={"pointwise_00": ["latency"]})
    assert {path.parent.name for path in paths} == {"NVIDIA-A100-cupti-cold", "NVIDIA-H200-cupti-cold"}


def test_the_axis_is_the_swept_parameter_or_else_the_bytes():
    records = synthetic_records(SHAPE)
    view = view_of(records)
    axes = {
        operator: figures_of(view.only(operator=operator), view.contestants, Peaks())[0].x_label
        for operator in ("pointwise_00", "matmul_02")
    }
    assert axes == {"pointwise_00": "cols", "matmul_02": "M = N = K"}
    both = [replace(r, params={**r.params, "rows": 10 * r.case_index + 1}) for r in records]
    view = view_of(both).only(operator="pointwise_00")
    assert figures_of(view, view.contestants, Peaks())[0].x_label == "compulsory bytes"


def test_the_roof_is_the_one_that_the_roofline_times_imply():
    view = view_of(synthetic_records(SHAPE)).only(operator="matmul_02")
    (roof,) = [f.roof for f in figures_of(view, view.contestants, Peaks()) if f.name == "roofline"]
    assert max(y for _, y in roof) == pytest.approx(600)
    view = view_of(synthetic_records(SHAPE)).only(operator="pointwise_00")
    (roof,) = [f.roof for f in figures_of(view, view.contestants, Peaks()) if f.name == "roofline"]
    assert [y / x for x, y in roof] == pytest.approx([4.0] * len(roof))  # TFLOP/s per FLOP/byte: 4000 GB/s


def test_a_backend_keeps_its_colour_whoever_else_takes_part():
    few = looks([Contestant("torch"), Contestant("triton")])
    many = looks([Contestant(name) for name in ("torch", "torch_compile", "cutile", "tilelang", "triton", "helion")])
    assert few[Contestant("triton")].colour == many[Contestant("triton")].colour
    assert len({look.colour for look in many.values()}) == len(many)
    assert len({look.marker for look in many.values()}) == len(many)


def test_backends_that_nobody_has_heard_of_get_colours_too():
    strangers = [Contestant(f"backend{i}") for i in range(7)]
    assert len({look.colour for look in looks(strangers).values()}) == 7
    assert len(looks([Contestant(f"backend{i}") for i in range(20)])) == 20


def test_tuned_is_solid_and_its_default_dashed():
    both = looks([Contestant("triton"), Contestant("triton", "tuned"), Contestant("torch")])
    assert [look.solid for look in both.values()] == [False, True, True]


def test_ticks_are_round_and_keep_a_distance():
    assert [human(v) for v in (0.02, 1.5, 4096, 16000, 2.5e6)] == ["0.02", "1.5", "4096", "16k", "2.5M"]
    assert [tick_label(v) for v in (4096, 16384, 2**21)] == ["4096", "16Ki", "2Mi"]
    assert log_ticks(0.9, 3.5) == pytest.approx([1, 1.2, 1.5, 2, 2.5, 3])
    assert log_ticks(1, 1e6) == pytest.approx([1, 10, 100, 1e3, 1e4, 1e5, 1e6])
    assert len(spread([2.0**i for i in range(20)], 6)) <= 8


def test_the_same_records_give_the_same_bytes(tmp_path: Path):
    written = []
    for name in ("one", "two"):
        folder = write_campaign(tmp_path / name, synthetic_records(replace(SHAPE, operators=1)))
        plots = {"pointwise_00": ["latency", "roofline"]}
        written.append(draw_figures(folder, plots=plots, formats=("svg", "pdf", "png")))
    assert {path.suffix for path in written[0]} == {".svg", ".pdf", ".png"}
    for first, second in zip(*written, strict=True):
        assert first.read_bytes() == second.read_bytes(), first.name
