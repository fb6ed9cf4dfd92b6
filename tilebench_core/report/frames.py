"""The records as a flat table, for CSV and Parquet."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilebench_core.analysis.points import View, ratio
from tilebench_core.analysis.standings import BASELINE
from tilebench_core.records import Record

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["records_frame", "write_csv", "write_parquet"]

_LEFT_OUT = ("samples_us", "outliers")  # they stay in records.jsonl; the count is kept


def records_frame(view: View, records: Iterable[Record]) -> pd.DataFrame:
    """One row per record: its fields (mappings as JSON text), the derived rates, and the speedup over PyTorch."""
    import pandas as pd

    speedups: dict[int, float | None] = {}
    for point in view.points:
        for record in point.valid.values():
            speedups[id(record)] = ratio(point.valid.get(BASELINE), record)
    names = [field.name for field in dataclasses.fields(Record) if field.name not in _LEFT_OUT]
    records = list(records)
    columns: dict[str, list[Any]] = {}
    for name in names:
        values = [getattr(record, name) for record in records]
        flat = all(isinstance(value, (str, int, float, type(None))) and not isinstance(value, Enum) for value in values)
        columns[name] = values if flat else [_flat(value) for value in values]
    columns["samples"] = [len(record.samples_us) if record.samples_us else None for record in records]
    for name in ("gbps", "tflops", "utilisation"):
        columns[name] = [getattr(record, name) for record in records]
    columns["speedup"] = [speedups.get(id(record)) for record in records]
    return pd.DataFrame(columns)


def _flat(value: Any) -> Any:
    if isinstance(value, (dict, list, tuple)):
        return json.dumps(value, sort_keys=True, default=str)
    return getattr(value, "value", value)


def write_csv(frame: pd.DataFrame, path: Path) -> Path:
    """Write the table as CSV; a missing value is an empty cell."""
    frame.to_csv(path, index=False)
    return path


def write_parquet(frame: pd.DataFrame, path: Path) -> Path:
    """Write the table as Parquet."""
    frame.to_parquet(path, index=False)
    return path
