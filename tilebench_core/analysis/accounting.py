"""What a campaign's time went into, by the records' own accounting."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from tilebench_core.records import Record

__all__ = ["Account", "accounts", "overhead_s"]

_COMPILERS = ("compile", "tune")


@dataclass(frozen=True, kw_only=True)
class Account:
    """One backend's trials. `steps` are mean wall seconds per trial; `device_s` is how much of them the device was busy.

    `overhead_s` is the mean of what is left of a trial without compiling, tuning and the device's own work;
    `overhead_median_s` its median. Both are None where the clock cannot tell how long the device was busy.
    """

    backend: str
    trials: int
    steps: dict[str, float]
    device_s: float | None
    overhead_s: float | None
    overhead_median_s: float | None


def overhead_s(record: Record) -> float | None:
    """Seconds of a trial that were neither compiling, nor tuning, nor work on the device."""
    if record.device_s is None:
        return None
    return sum(value for step, value in record.seconds.items() if step not in _COMPILERS) - record.device_s


def accounts(records: Iterable[Record]) -> list[Account]:
    """One Account per backend, over the records that were timed."""
    by_backend: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        if record.median_us is not None and record.seconds:
            by_backend[record.backend].append(record)
    return [_account(backend, own) for backend, own in by_backend.items()]


def _account(backend: str, records: list[Record]) -> Account:
    steps: dict[str, float] = defaultdict(float)
    for record in records:
        for step, value in record.seconds.items():
            steps[step] += value / len(records)
    told = [rest for record in records if (rest := overhead_s(record)) is not None]
    busy = [record.device_s for record in records if record.device_s is not None]
    return Account(
        backend=backend,
        trials=len(records),
        steps=dict(steps),
        device_s=statistics.fmean(busy) if busy else None,
        overhead_s=statistics.fmean(told) if told else None,
        overhead_median_s=statistics.median(told) if told else None,
    )
