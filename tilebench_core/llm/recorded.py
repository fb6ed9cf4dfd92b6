"""Times that were recorded elsewhere, for a machine that can verify candidates and not time them.

They are found by the source's checksum, so that a recorded time never stands for a kernel that was not timed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilebench_core.case import Case
from tilebench_core.errors import RequestError

__all__ = ["RecordedTimes", "Times", "case_key", "load_recorded"]


@dataclass(frozen=True, kw_only=True)
class Times:
    """What was measured for one case of one source, in microseconds."""

    median_us: float
    roofline_us: float | None
    baseline_us: float | None


@dataclass(frozen=True, kw_only=True)
class RecordedTimes:
    """All recorded times, where they are from, and on which device they were measured."""

    origin: str
    device: str
    table: Mapping[str, Times]

    def find(self, source_sha256: str, operator: str, backend: str, case: Case) -> Times | None:
        """The times of a source on a case, or None."""
        return self.table.get(_key(source_sha256, operator, backend, case.dtype, case.params))


def case_key(dtype: str, params: Mapping[str, Any]) -> str:
    """A case as a key: dtype and parameters."""
    return json.dumps([dtype, params], sort_keys=True, default=str)


def _key(source: str, operator: str, backend: str, dtype: str, params: Mapping[str, Any]) -> str:
    return json.dumps([source, operator, backend, case_key(dtype, params)])


def load_recorded(place: str) -> RecordedTimes:
    """Read a JSON file ({device, times: [{source_sha256, operator, backend, dtype, params, median_us, …}]}) or a campaign.

    Raises RequestError if there is neither.
    """
    path = Path(place)
    if path.is_file():
        content = json.loads(path.read_text(encoding="utf-8"))
        return RecordedTimes(origin=place, device=content["device"], table=dict(map(_row, content["times"])))
    table: dict[str, Times] = {}
    devices: set[str] = set()
    for header in sorted(path.glob("llm/*/trajectory.json")):
        about = json.loads(header.read_text(encoding="utf-8"))
        for evaluation in header.parent.glob("round_*/evaluation.json"):
            for backend, attempt in json.loads(evaluation.read_text(encoding="utf-8"))["attempts"].items():
                for case in attempt["cases"]:
                    if case["median_us"] is not None:
                        row = {
                            **case,
                            "source_sha256": attempt["source_sha256"],
                            "operator": about["key"]["operator"],
                            "backend": backend,
                        }
                        table.update([_row(row)])
                        devices.add(about.get("times_device") or about["device"])
    if not table:
        raise RequestError(f"times_from={place}: neither a file of times nor a campaign with timed candidates")
    return RecordedTimes(origin=place, device=", ".join(sorted(devices)), table=table)


def _row(row: Mapping[str, Any]) -> tuple[str, Times]:
    key = _key(row["source_sha256"], row["operator"], row["backend"], row["dtype"], row["params"])
    return key, Times(
        median_us=row["median_us"], roofline_us=row.get("roofline_us"), baseline_us=row.get("baseline_us")
    )
