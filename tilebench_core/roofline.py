"""Ceilings of a device, measured by `tilebench peaks` or taken from a datasheet, and the roofline that follows.

Roofline time = max(F / peak of the mode, Q / bandwidth) (Williams et al., 2009). An unknown device has no ceilings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from tilebench_core.errors import ConfigError
from tilebench_core.operator_config import load_yaml

__all__ = ["Ceilings", "ceilings_for", "device_slug", "matrix_rate", "roofline_us"]


@dataclass(frozen=True, kw_only=True)
class Ceilings:
    """A device's ceilings: GB/s for bandwidths, TFLOP/s (or TOP/s) for rates, µs for launch floors by backend.

    `source` is "measured" or "datasheet". `matrix_tflops` is keyed by precision class.
    """

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    source: str
    bandwidth_gbps: float
    matrix_tflops: Mapping[str, float] = field(default_factory=dict)
    vector_tflops: float | None = None
    l2_gbps: float | None = None
    read_gbps: float | None = None
    write_gbps: float | None = None
    launch_floor_us: Mapping[str, float] = field(default_factory=dict)
    datasheet: Mapping[str, Any] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)


def device_slug(name: str) -> str:
    """The file name of a GPU's ceilings: "NVIDIA H200" → "nvidia_h200"."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def ceilings_for(device_name: str, folder: Path) -> Ceilings | None:
    """The ceilings in `folder` for the GPU called `device_name`, or None if there are none for exactly this device."""
    path = folder / f"{device_slug(device_name)}.yaml"
    if not path.is_file():
        return None
    raw = load_yaml(path).get("ceilings")
    if raw is None:
        return None
    from pydantic import TypeAdapter, ValidationError

    try:
        found: Ceilings = TypeAdapter(Ceilings).validate_python(raw)
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(f"{path}: ceilings.{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    return found


def matrix_rate(rates: Mapping[str, float], precision: str) -> float | None:
    """The matrix rate of a precision class. Exact products are products of integers: their rate is that of int8."""
    return rates.get("int8" if precision == "exact" else precision)


def roofline_us(flops: float, bytes_moved: float, mode: str, precision: str, ceilings: Ceilings | None) -> float | None:
    """The roofline time in microseconds, or None where a ceiling that it needs is unknown.

    Matrix units have no mode for products in full fp32: those are held against the vector rate whatever the mode.
    """
    if ceilings is None:
        return None
    memory_us = bytes_moved / ceilings.bandwidth_gbps / 1e3
    if flops == 0:
        return memory_us
    on_matrix_units = mode == "matrix" and precision != "fp32"
    peak = matrix_rate(ceilings.matrix_tflops, precision) if on_matrix_units else ceilings.vector_tflops
    return None if peak is None else max(memory_us, flops / peak / 1e6)
