"""From the state of a finished trial to its Record."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from tilebench_core.outcomes import Outcome
from tilebench_core.packs import Operator
from tilebench_core.records import Record
from tilebench_core.roofline import roofline_us
from tilebench_core.timing import Sample, summarise
from tilebench_core.verify import PreparedCase
from tilebench_core.worker.case import Run
from tilebench_core.worker.messages import TaskMessage
from tilebench_core.worker.session import Session
from tilebench_core.worker.timed import settings_for

__all__ = ["describe"]

IMPOSSIBLE = 1.05
"""A case this much faster than the device's measured ceilings allow is suspicious."""


def describe(
    session: Session, operator: Operator, task: TaskMessage, run: Run, prepared: PreparedCase | None, started: str
) -> Record:
    """The Record of one trial."""
    config, case = operator.config, task.case
    precision = config.precision(case.dtype)
    flops, moved = config.flops(case), config.bytes(case)
    limit_us = roofline_us(flops, moved, config.mode, precision, session.ceilings)
    outcome, reason = run.end or (Outcome.PASSED, None)
    if outcome is Outcome.PASSED and run.interpreted:
        reason = "interpreted on a CPU: verified only, never timed"
    measured = _measured(session, task, run) if run.end is None and run.timing is not None else {}
    if measured and prepared is not None:
        impossible = _impossible(session, run, prepared, flops, moved, config.mode, precision, measured["median_us"])
        if impossible is not None:
            outcome, reason = Outcome.SUSPICIOUS, impossible
    return Record(
        trial_id=run.trial.trial_id,
        operator=operator.name,
        category=config.category,
        dtype=case.dtype,
        params=dict(case.params),
        backend=run.trial.backend,
        provider=run.trial.provider,
        kernel=run.trial.kernel,
        mode=run.trial.mode,
        outcome=outcome,
        reason=reason,
        check=run.check,
        case_kind=case.kind,
        case_index=case.index,
        config=dict(run.config) if run.config is not None else None,
        config_source=run.config_source,
        operator_config_changed=task.changed,
        precision=precision,
        interpreted=run.interpreted,
        flops=flops,
        bytes=moved,
        roofline_us=limit_us,
        peak_bytes=run.peak_bytes,
        device=session.device.name,
        device_s=run.device_s,
        versions=session.versions(run.trial.backend),
        started=started,
        **_compiled(run),
        **_errors(run),
        **measured,
    )


def _compiled(run: Run) -> dict[str, Any]:
    if run.compilation is None:
        return {}
    launches = run.compilation.launches

    def largest(values: Sequence[int | None]) -> int | None:
        known = [value for value in values if value is not None]
        return max(known) if known else None

    return {
        "compile_s": run.compilation.seconds,
        "launches": len(launches) or None,
        "registers": largest([launch.resources.registers for launch in launches]),
        "shared_bytes": largest([launch.resources.shared_bytes for launch in launches]),
        "spill_bytes": largest([launch.resources.spill_bytes for launch in launches]),
    }


def _errors(run: Run) -> dict[str, Any]:
    if run.verdict is None:
        return {}
    found = run.verdict.comparison
    return {
        "max_abs_err": found.max_abs_err,
        "max_rel_err": found.max_rel_err,
        "worst": found.worst,
        "failing_share": found.failing_share,
    }


def _median(samples: Sequence[Sample], attribute: str) -> float | None:
    values = [getattr(sample, attribute) for sample in samples]
    return None if any(value is None for value in values) else float(statistics.median(values))


def _measured(session: Session, task: TaskMessage, run: Run) -> dict[str, Any]:
    assert run.timing is not None
    settings, samples = settings_for(session, task), run.timing.samples
    found = summarise([sample.busy_us for sample in samples])
    span, activities = _median(samples, "span_us"), _median(samples, "activities")
    state = run.device_state
    means_only = session.clock.means_only
    return {
        "clock": session.clock.name,
        "cache": ("cold" if settings.cold else "warm") if session.device.is_gpu else None,
        "graph": run.graph,
        "graph_reason": run.graph_reason,
        "protocol": settings.name,
        "stop_reason": run.timing.stop_reason,
        "samples_us": None if means_only else tuple(round(sample.busy_us, 4) for sample in samples),
        "median_us": found.median_us,
        "mean_us": found.mean_us,
        "p10_us": None if means_only else found.p10_us,
        "p90_us": None if means_only else found.p90_us,
        "min_us": None if means_only else found.min_us,
        "iqr_rel": None if means_only else found.iqr_rel,
        "outliers": None if means_only else found.outliers,
        "bimodal": None if means_only else found.bimodal,
        "span_us": span,
        "gap_us": span - found.median_us if span is not None else None,
        "activities": int(activities) if activities is not None else None,
        "calls_per_sample": max(sample.calls for sample in samples),
        "device_state": dict(state) if state is not None else None,
        "throttled": state["throttled"] if state is not None else None,
    }


def _impossible(
    session: Session,
    run: Run,
    prepared: PreparedCase,
    flops: float,
    moved: float,
    mode: str,
    precision: str,
    median_us: float,
) -> str | None:
    """Why the measured time cannot be true, or None.

    Outputs that fit the L2 cache need not have reached memory when a kernel ends, so they are left out of the bound.
    """
    written = sum(output.numel() * output.element_size() for output in prepared.expected[0])
    bound = roofline_us(
        flops, max(0.0, moved - min(written, session.device.l2_bytes)), mode, precision, session.ceilings
    )
    if bound is None or not session.timing.cold or bound <= IMPOSSIBLE * median_us:
        return None
    return (
        f"{median_us:.2f} µs is {bound / median_us:.2f} times as fast as the measured ceilings allow ({bound:.2f} µs)"
    )
