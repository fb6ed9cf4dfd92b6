"""The records as a flat table, for CSV and Parquet. Written without pandas, whose import takes longer than the writing."""

from __future__ import annotations

import csv
import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeAlias

from tilebench_core.analysis.points import View, valid_ratio
from tilebench_core.analysis.standings import BASELINE
from tilebench_core.records import Record

__all__ = ["Columns", "records_columns", "write_csv", "write_parquet"]

_ENCODE = json.JSONEncoder(sort_keys=True, default=str).encode  # one for all: making it costs more than using it
_PLAIN = {str, int, float, bool, type(None)}
_LEFT_OUT = ("samples_us", "outliers")  # they stay in records.jsonl; the count is kept


Columns: TypeAlias = dict[str, list[Any]]


def records_columns(view: View, records: Iterable[Record]) -> Columns:
    """One row per record: its fields (mappings as JSON text), the derived rates, and the speedup over PyTorch."""
    speedups: dict[int, float | None] = {}
    for point in view.points:
        for record in point.valid.values():
            speedups[id(record)] = valid_ratio(point.valid.get(BASELINE), record)
    names = [field.name for field in dataclasses.fields(Record) if field.name not in _LEFT_OUT]
    records = list(records)
    columns: Columns = {}
    for name in names:
        values = [getattr(record, name) for record in records]
        columns[name] = values if set(map(type, values)) <= _PLAIN else [_flat(value) for value in values]
    columns["samples"] = [len(record.samples_us) if record.samples_us else None for record in records]
    for name in ("gbps", "tflops", "utilisation"):
        columns[name] = [getattr(record, name) for record in records]
    columns["speedup"] = [speedups.get(id(record)) for record in records]
    return columns


def _flat(value: Any) -> Any:
    if isinstance(value, (dict, list, tuple)):
        return _ENCODE(value)
    return getattr(value, "value", value)


def write_csv(columns: Columns, path: Path) -> Path:
    """Write the table as CSV; a missing value is an empty cell."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path


def write_parquet(columns: Columns, path: Path) -> Path:
    """Write the table as Parquet."""
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path
