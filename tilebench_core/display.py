"""What a person sees: live progress on a terminal, plain lines in a pipe, and a table at the end."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from tilebench_core.outcomes import Outcome
from tilebench_core.plan import CaseTask, Trial
from tilebench_core.records import Record
from tilebench_core.run import Progress as RunnerProgress

__all__ = ["PlainProgress", "TerminalProgress", "failures_table", "format_us", "series_table"]


class PlainProgress(RunnerProgress):
    """One line per finished case and failure, for pipes and logs."""

    def __init__(self, console: Console, total: int) -> None:
        self._console, self._total, self._started = console, total, time.monotonic()
        self._passed = self._failed = 0

    def case_started(self, task: CaseTask, remaining: int) -> None:
        done = max(0, self._total - remaining)
        if done and (done % 20 == 0 or remaining == 1):
            elapsed = time.monotonic() - self._started
            left = elapsed / done * remaining
            self._console.print(
                f"[{done}/{self._total}] {task.operator.name} {task.case.dtype}: {self._passed} passed, "
                f"{self._failed} failed, {elapsed:.0f} s, about {left:.0f} s left",
                highlight=False,
            )

    def recorded(self, record: Record) -> None:
        self._passed += record.outcome.may_have_numbers
        if record.outcome.is_failure:
            self._failed += 1
            self._console.print(failure_line(record), highlight=False, markup=False, soft_wrap=True)

    def worker_lost(self, reason: str) -> None:
        self._console.print(f"worker lost: {reason}; a fresh one goes on", highlight=False, markup=False)


class TerminalProgress(RunnerProgress):
    """A live line: operator, case, backend, step, and the time left."""

    def __init__(self, console: Console, total: int) -> None:
        self._console = console
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self._task = self._bar.add_task("starting", total=total)
        self._total = total

    def __enter__(self) -> TerminalProgress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def case_started(self, task: CaseTask, remaining: int) -> None:
        self._bar.update(self._task, completed=max(0, self._total - remaining), description=self._where(task))

    def step_started(self, task: CaseTask, trial: Trial | None, step: str) -> None:
        who = f" · {trial.backend}" if trial else ""
        self._bar.update(self._task, description=f"{self._where(task)}{who} · {step}")

    @staticmethod
    def _where(task: CaseTask) -> str:
        return f"{task.operator.name} {task.case.dtype} {task.case.label}"

    def recorded(self, record: Record) -> None:
        if record.outcome.is_failure:
            self._console.print(failure_line(record), highlight=False, markup=False)

    def worker_lost(self, reason: str) -> None:
        self._console.print(f"worker lost: {reason}; a fresh one goes on", highlight=False, markup=False)


def failure_line(record: Record) -> str:
    """A failed record in one line."""
    case = " ".join(f"{name}={value}" for name, value in record.params.items())
    return f"{record.outcome.value}: {record.operator} {record.dtype} {case} on {record.backend} ({record.mode}): {record.reason}"


def format_us(value: float | None) -> str:
    """A time for a table: three digits, µs or ms."""
    if value is None:
        return "–"
    return f"{value / 1e3:.3g} ms" if value >= 1000 else f"{value:.3g} µs"


def _geomean(values: Sequence[float]) -> float | None:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def series_table(records: Sequence[Record], baseline: str = "torch") -> Table:
    """One row per series: outcome counts, latency at its largest case, speedup over PyTorch, bandwidth or rate."""
    times = {
        (r.operator, r.dtype, str(r.params), r.precision, r.graph): r.median_us
        for r in records
        if r.backend == baseline and r.mode == "default" and r.median_us
    }
    table = Table(title=None, header_style="bold", pad_edge=False)
    for name in ("operator", "dtype", "backend", "mode", "outcome"):
        table.add_column(name)
    for name in ("latency", "speedup", "GB/s", "TFLOP/s", "roofline"):
        table.add_column(name, justify="right")
    series: dict[tuple[str, ...], list[Record]] = {}
    for record in records:
        series.setdefault(record.series, []).append(record)
    previous = ""
    for rows in series.values():
        first, last = rows[0], max(rows, key=lambda r: (r.median_us is not None, r.bytes or 0))
        if previous and previous != first.operator:
            table.add_section()
        previous = first.operator
        ratios = []
        for r in rows:
            base = times.get((r.operator, r.dtype, str(r.params), r.precision, r.graph))
            if base and r.median_us:
                ratios.append(base / r.median_us)
        speedup = _geomean(ratios)
        table.add_row(
            first.operator,
            first.dtype,
            first.backend,
            first.mode,
            _outcomes(rows),
            format_us(last.median_us) if last.median_us else ("verified" if last.interpreted else "–"),
            f"{speedup:.2f}×" if speedup else "–",
            f"{last.gbps:.3g}" if last.gbps else "–",
            f"{last.tflops:.3g}" if last.tflops else "–",
            f"{last.utilisation:.0%}" if last.utilisation else "–",
        )
    return table


def _outcomes(rows: Sequence[Record]) -> str:
    counts = Counter(record.outcome for record in rows)
    if len(counts) == 1:
        outcome = next(iter(counts))
        text = outcome.value if len(rows) == 1 else f"{outcome.value} {len(rows)}"
    else:
        text = ", ".join(f"{outcome.value} {count}" for outcome, count in counts.items())
    colour = "red" if any(o.is_failure for o in counts) else "green" if Outcome.PASSED in counts else "yellow"
    return f"[{colour}]{text}[/]"


def failures_table(records: Sequence[Record]) -> Table | None:
    """Why what did not pass did not, grouped by reason; None if everything passed."""
    groups: dict[tuple[str, str, str], int] = {}
    for record in records:
        if not record.outcome.may_have_numbers:
            key = record.outcome.value, record.backend, _shortened(record.reason or "")
            groups[key] = groups.get(key, 0) + 1
    if not groups:
        return None
    table = Table(title="Not passed", title_justify="left", header_style="bold", pad_edge=False)
    for name in ("outcome", "backend", "trials", "reason"):
        table.add_column(name, overflow="fold")
    for (outcome, backend, reason), count in sorted(groups.items(), key=lambda item: -item[1])[:20]:
        table.add_row(outcome, backend, str(count), reason)
    return table


def _shortened(reason: str) -> str:
    """A reason without what differs from case to case, so that equal reasons fall together."""
    import re

    text = re.sub(r" in \d+\.\d s, ", ", ", reason)
    return text if len(text) <= 200 else text[:197] + "…"
