"""Records of a campaign that was resumed after a kernel had been changed: which of them are of its former source."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilebench_core.analysis.points import case_key
from tilebench_core.records import Record

__all__ = ["current", "former", "without_former"]


def current(records: Iterable[Record]) -> list[Record]:
    """Leave out what was measured of a kernel's former source where a later record is of the present one.

    Both are of the same series, case and device; a trial that ended its worker knows no device, and stands for any.
    """
    placed = [(record, (*record.series, case_key(record))) for record in records]
    newest: dict[tuple[object, ...], str | None] = {}
    for record, place in placed:
        newest[place, record.device] = newest[place, None] = record.kernel
    return [record for record, place in placed if record.kernel == newest[place, record.device]]


def former(records: Sequence[Record]) -> list[Record]:
    """The records of a kernel's former source among `current` ones: nobody has measured their cases again yet."""
    newest = _newest(records)
    return [record for record in records if record.kernel not in (None, newest.get(_kernel(record)))]


def without_former(records: Sequence[Record]) -> list[Record]:
    """The other records."""
    newest = _newest(records)
    return [record for record in records if record.kernel in (None, newest.get(_kernel(record)))]


def _newest(records: Sequence[Record]) -> dict[tuple[str, str, str | None], str]:
    return {_kernel(record): record.kernel for record in records if record.kernel is not None}


def _kernel(record: Record) -> tuple[str, str, str | None]:
    return record.operator, record.backend, record.provider
