"""A campaign's folder as one value: its records, and what is known about the machine that made them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilebench_core.campaign import Campaign
from tilebench_core.errors import RequestError
from tilebench_core.records import Record

__all__ = ["DEFAULT_NOISE_FLOOR", "Peaks", "Results", "load_results"]

DEFAULT_NOISE_FLOOR = 0.01  # used, and said to be assumed, where a campaign has not measured its own


@dataclass(frozen=True, kw_only=True)
class Peaks:
    """The device's measured ceilings as the campaign wrote them down; None or empty where they are unknown."""

    bandwidth_gbps: float | None = None
    launch_floor_us: Mapping[str, float] = field(default_factory=dict)

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

    @property
    def peaks(self) -> Peaks:
        """The ceilings in `environment.json`, if any."""
        raw = self.environment.get("peaks") or {}
        floor = raw.get("launch_floor_us") or {}
        floors = floor if isinstance(floor, Mapping) else {"*": floor}
        bandwidth = raw.get("bandwidth_gbps")
        return Peaks(
            bandwidth_gbps=float(bandwidth) if isinstance(bandwidth, (int, float)) else None,
            launch_floor_us={str(k): float(v) for k, v in floors.items() if isinstance(v, (int, float))},
        )

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
        records=tuple(campaign.records()),
        environment=environment if isinstance(environment, Mapping) else {},
        config_text=config.read_text(encoding="utf-8") if config.is_file() else "",
        torn=tuple(campaign.torn),
    )
