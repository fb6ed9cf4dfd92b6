"""A campaign's folder as one value: its records, and what is known about the machine that made them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from tilebench_core.analysis.versions import current
from tilebench_core.campaign import Campaign
from tilebench_core.compose import conf_dir
from tilebench_core.errors import RequestError
from tilebench_core.records import Record
from tilebench_core.roofline import ceilings_for, matrix_rate

__all__ = ["DEFAULT_NOISE_FLOOR", "Peaks", "Results", "load_results"]

DEFAULT_NOISE_FLOOR = 0.01  # used, and said to be assumed, where a campaign has not measured its own


@dataclass(frozen=True, kw_only=True)
class Peaks:
    """The device's ceilings as the campaign wrote them down; None or empty where they are unknown.

    `source` is "measured" or "datasheet"; `datasheet` holds the datasheet's rates beside measured ones.
    """

    bandwidth_gbps: float | None = None
    launch_floor_us: Mapping[str, float] = field(default_factory=dict)
    source: str = ""
    matrix_tflops: Mapping[str, float] = field(default_factory=dict)
    vector_tflops: float | None = None
    datasheet: Peaks | None = None

    def datasheet_us(self, record: Record) -> float | None:
        """The record's roofline time by the datasheet; None where that, or what bounded the measured one, is unknown."""
        other = self.datasheet
        if not (other and other.bandwidth_gbps and self.bandwidth_gbps and record.roofline_us and record.bytes):
            return None
        memory_us = record.bytes / other.bandwidth_gbps / 1e3
        if math.isclose(record.roofline_us, record.bytes / self.bandwidth_gbps / 1e3, rel_tol=1e-6):
            return memory_us
        precision = record.precision or ""
        rates = (
            (matrix_rate(self.matrix_tflops, precision), matrix_rate(other.matrix_tflops, precision)),
            (self.vector_tflops, other.vector_tflops),
        )
        for measured, printed in rates:
            if (
                measured
                and printed
                and math.isclose(record.roofline_us, (record.flops or 0) / measured / 1e6, rel_tol=1e-6)
            ):
                return max(memory_us, (record.flops or 0) / printed / 1e6)
        return None

    def floor_us(self, backend: str) -> float | None:
        """Device time of an empty kernel of `backend`, or of any backend where only one value is known ("*")."""
        return self.launch_floor_us.get(backend, self.launch_floor_us.get("*"))


@dataclass(frozen=True, kw_only=True)
class Results:
    """What one campaign left behind. `records` holds the last record of each trial; `torn` lists unreadable lines."""

    name: str
    folder: Path
    records: tuple[Record, ...]
    environment: Mapping[str, Any] = field(default_factory=dict)
    config_text: str = ""
    torn: tuple[tuple[int, str], ...] = ()

    @property
    def noise_floor(self) -> float:
        """Relative difference below which two latencies count as equal: the campaign's own, or the default."""
        measured = self.environment.get("noise_floor")
        return float(measured) if isinstance(measured, (int, float)) else DEFAULT_NOISE_FLOOR

    @property
    def noise_floor_is_measured(self) -> bool:
        """True where the campaign timed an operator against itself and published the floor."""
        return isinstance(self.environment.get("noise_floor"), (int, float))

    @cached_property
    def peaks(self) -> Peaks:
        """The ceilings in `environment.json`, if any."""
        raw = self.environment.get("peaks") or {}
        printed = raw.get("datasheet") or self._datasheet()
        floor = raw.get("launch_floor_us") or {}
        floors = floor if isinstance(floor, Mapping) else {"*": floor}
        bandwidth = raw.get("bandwidth_gbps")
        return Peaks(
            bandwidth_gbps=float(bandwidth) if isinstance(bandwidth, (int, float)) else None,
            launch_floor_us={str(k): float(v) for k, v in floors.items() if isinstance(v, (int, float))},
            source=str(raw.get("source") or ("measured" if bandwidth else "")),
            matrix_tflops=raw.get("matrix_tflops") or {},
            vector_tflops=raw.get("vector_tflops"),
            datasheet=_printed(printed) if printed and raw.get("source") != "datasheet" else None,
        )

    def _datasheet(self) -> Mapping[str, Any]:
        """The datasheet's rates for exactly this device, of a campaign that was recorded without them."""
        known = ceilings_for(self.device, conf_dir() / "device")
        return known.datasheet if known else {}

    @property
    def device(self) -> str:
        """The device's name, from the environment or else from the records."""
        names = sorted({record.device for record in self.records if record.device})
        return str(self._of_device("name") or ", ".join(names) or "unknown device")

    @property
    def driver(self) -> str:
        """The device driver's version, or an empty string."""
        return str(self._of_device("driver") or "")

    def _of_device(self, name: str) -> Any:
        device = self.environment.get("device")
        if isinstance(device, Mapping):
            return device.get(name)
        return device if name == "name" else self.environment.get(name)

    @property
    def versions(self) -> dict[str, str]:
        """Versions of everything involved, as the environment or else the records name them."""
        versions: dict[str, str] = {}
        for record in self.records:
            versions.update(record.versions)
        backends = self.environment.get("backends") or {}
        for known in (self.environment.get("packages") or {}, *backends.values()):
            versions.update({str(name): str(version) for name, version in known.items() if version})
        return versions


def _printed(raw: Mapping[str, Any]) -> Peaks:
    return Peaks(
        bandwidth_gbps=raw.get("bandwidth_gbps"), source="datasheet", matrix_tflops=raw.get("matrix_tflops") or {},
        vector_tflops=raw.get("vector_tflops"),
    )  # fmt: skip


def load_results(folder: Path) -> Results:
    """Read a campaign's folder; raise RequestError if it holds no records or a file in it cannot be read."""
    campaign = Campaign(folder)
    if not campaign.records_path.is_file():
        raise RequestError(f"{campaign.records_path}: no such file; expected the records of a campaign")
    try:
        environment = campaign.environment()
    except ValueError as error:
        raise RequestError(f"{folder / 'environment.json'}: not valid JSON: {error}") from error
    config = folder / "config.yaml"
    return Results(
        name=folder.resolve().name,
        folder=folder,
        records=tuple(current(campaign.records())),
        environment=environment if isinstance(environment, Mapping) else {},
        config_text=config.read_text(encoding="utf-8") if config.is_file() else "",
        torn=tuple(campaign.torn),
    )
