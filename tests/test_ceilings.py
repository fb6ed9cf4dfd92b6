"""Ceilings: every file of conf/device is whole, says where its numbers come from, and is nobody else's."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tilebench_core.compose import conf_dir
from tilebench_core.errors import ConfigError
from tilebench_core.peaks import datasheet_of
from tilebench_core.roofline import Ceilings, ceilings_for, device_slug, roofline_us

FOLDER = conf_dir() / "device"
GPUS = {
    "NVIDIA H200": "measured",
    "NVIDIA B200": "datasheet",
    "NVIDIA GH200 480GB": "datasheet",
    "NVIDIA H100 80GB HBM3": "datasheet",
    "NVIDIA A100-SXM4-80GB": "datasheet",
}


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_device_file_loads(path: Path):
    raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert set(raw) == {"name", "compile_for", "ceilings"}
    assert raw["compile_for"].startswith("sm_")
    found = ceilings_for(path.stem, FOLDER)
    if raw["ceilings"] is None:
        assert path.stem in ("auto", "cpu", "cuda")
        return
    assert found.source in ("measured", "datasheet")
    rates = [found.bandwidth_gbps, *found.matrix_tflops.values(), *found.launch_floor_us.values()]
    assert all(isinstance(rate, float) and rate > 0 for rate in rates)
    assert path.stem in {device_slug(name) for name in GPUS}


@pytest.mark.parametrize("name", sorted(GPUS))
def test_a_gpu_finds_its_own_ceilings_by_the_name_that_nvml_prints(name):
    found = ceilings_for(name, FOLDER)
    assert found.source == GPUS[name]
    if found.source == "datasheet":
        assert "NVIDIA" in found.details["datasheet"]
        assert not found.launch_floor_us  # a datasheet knows none
    else:
        assert found.bandwidth_gbps < found.datasheet["bandwidth_gbps"]
        assert all(rate < found.datasheet["matrix_tflops"][kind] for kind, rate in found.matrix_tflops.items())
        assert "NVIDIA" in found.datasheet["source"]


@pytest.mark.parametrize("name", ["NVIDIA H200 NVL", "NVIDIA H100 PCIe", "NVIDIA A100-SXM4-40GB", "NVIDIA L4", ""])
def test_an_unknown_device_stays_unknown(name):
    assert ceilings_for(name, FOLDER) is None
    assert roofline_us(1e9, 1e6, "matrix", "fp16", None) is None


def test_a_rate_that_is_left_out_is_unknown_and_not_guessed():
    found = ceilings_for("NVIDIA B200", FOLDER)
    assert roofline_us(1e9, 1e6, "vector", "fp32", found) is None
    assert roofline_us(1e9, 1e6, "matrix", "tf32", found) is None
    assert roofline_us(0, 8e6, "vector", "fp32", found) == pytest.approx(1.0)  # memory alone is known


def test_exact_products_are_held_against_the_rate_of_integers():
    found = ceilings_for("NVIDIA A100-SXM4-80GB", FOLDER)
    assert roofline_us(624e6, 1.0, "matrix", "exact", found) == pytest.approx(1.0)


def test_products_in_full_fp32_are_held_against_the_vector_rate_in_either_mode():
    found = Ceilings(source="datasheet", bandwidth_gbps=1000.0, matrix_tflops={"fp16": 500.0}, vector_tflops=50.0)
    assert roofline_us(100e6, 1.0, "matrix", "fp32", found) == roofline_us(100e6, 1.0, "vector", "fp32", found)
    assert roofline_us(100e6, 1.0, "matrix", "fp32", found) == pytest.approx(2.0)
    assert roofline_us(100e6, 1.0, "matrix", "fp16", found) == pytest.approx(0.2)


def test_measuring_keeps_what_the_datasheet_says():
    raw = yaml.safe_load((FOLDER / "nvidia_a100_sxm4_80gb.yaml").read_text())["ceilings"]
    kept = datasheet_of(raw)
    assert kept["bandwidth_gbps"] == 2039.0
    assert "A100" in kept["source"]
    assert datasheet_of({"source": "measured", "datasheet": kept}) == kept
    assert datasheet_of({}) == {}


def test_a_wrong_key_is_named(tmp_path: Path):
    (tmp_path / "gpu.yaml").write_text("ceilings: {source: datasheet, bandwidth_gbps: 1.0, bandwith: 2}")
    with pytest.raises(ConfigError, match="bandwith"):
        ceilings_for("gpu", tmp_path)
