"""Send to MLflow what a campaign has measured and not sent yet. Nothing here can cost a measurement."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from tilebench_core.analysis.points import view_of
from tilebench_core.analysis.results import Results, load_results
from tilebench_core.analysis.standings import standings
from tilebench_core.tracking.options import TrackingOptions, results_store
from tilebench_core.tracking.series import Series, campaign_series
from tilebench_core.tracking.state import Sent, State, load_state, save_state
from tilebench_core.tracking.store import CAMPAIGN_TAG, SERIES_TAG, Store, open_store

__all__ = ["SyncResult", "Unsent", "sync_campaign"]

_ARTIFACTS = ("records.jsonl", "records.jsonl.gz", "environment.json", "config.yaml", "tuning.jsonl")
_DIAGNOSIS = ("diagnosis/profiles.jsonl", "diagnosis/inspections.jsonl", "diagnosis/experiments.jsonl")
_FOLDERS = ("figures", "report", "diagnosis/pages")
_BUSY_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Unsent:
    """Something that the store does not hold yet, and why."""

    what: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class SyncResult:
    """How a sync ended. `sent` and `unchanged` count series; `run_id` is the campaign's run."""

    campaign: str
    store: str | None
    sent: int = 0
    unchanged: int = 0
    unsent: tuple[Unsent, ...] = ()
    run_id: str | None = None
    seconds: float = 0.0

    @property
    def complete(self) -> bool:
        """True where the store now holds everything that was measured (or nothing is tracked)."""
        return not self.unsent

    @property
    def command(self) -> str:
        """What sends the rest later."""
        return f"tilebench sync {self.campaign}"

    @property
    def message(self) -> str:
        """One line for the terminal."""
        if self.store is None:
            return "not tracked (tracking=none)"
        if self.complete:
            return f"{self.sent} series sent to {self.store}, {self.unchanged} were there already"
        reason = self.unsent[0].reason
        unsent = f"{len(self.unsent)} series not sent to {self.store}: {reason}."
        return f"{unsent} The records are safe; `{self.command}` sends them"


def sync_campaign(folder: Path, options: TrackingOptions | None = None) -> SyncResult:
    """Send the campaign in `folder`; what was sent before is not sent again.

    Never raises for a store that fails: the result says what is unsent, why, and what to type. No run is left RUNNING.
    """
    started = time.monotonic()
    options = results_store(folder.resolve().parent, options)
    if options.kind == "none" or options.uri is None:
        return SyncResult(campaign=folder.name, store=None)
    tally = _Tally()
    try:
        with FileLock(str(folder / "tracking.json.lock"), timeout=_BUSY_TIMEOUT_S):
            campaign = load_results(folder)
            tally.waiting = campaign_series(campaign)
            state = load_state(folder)
            with open_store(options) as store:
                _send(campaign, state, store, options, tally)
    except Timeout as error:
        tally.fail("another process holds the lock " + str(error.lock_file))
    except (
        Exception
    ) as error:  # a store can fail in any way it likes: the reason goes into the result, the records stay
        tally.fail(_reason(error))
    unsent = tally.unsent + [Unsent(series.name, tally.reason) for series in tally.waiting]
    if tally.reason and not unsent:
        unsent = [Unsent("the campaign's run", tally.reason)]
    return SyncResult(
        campaign=str(folder), store=options.uri, sent=tally.sent, unchanged=tally.unchanged, unsent=tuple(unsent),
        run_id=tally.run_id, seconds=time.monotonic() - started,
    )  # fmt: skip


class _Tally:
    """Counts while sending: `waiting` holds the series that have not had their turn."""

    def __init__(self) -> None:
        self.waiting: list[Series] = []
        self.unsent: list[Unsent] = []
        self.sent = self.unchanged = 0
        self.run_id: str | None = None
        self.reason = ""

    def fail(self, reason: str) -> None:
        self.reason = reason


def _reason(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}"


def _send(campaign: Results, state: State, store: Store, options: TrackingOptions, tally: _Tally) -> None:
    sent = state.stores.setdefault(f"{options.uri}#{options.experiment}", Sent())
    sent.experiment_id = store.experiment_id
    with store.locked():
        if sent.parent and not store.exists(sent.parent):  # the store was deleted or replaced
            sent.parent, sent.series, sent.artifacts = None, {}, {}
        _end_stale(state.campaign_id, sent, store)
        if not sent.parent:
            tags = {CAMPAIGN_TAG: state.campaign_id, "campaign": campaign.name, "gpu": campaign.device}
            commit = str(campaign.environment.get("git_commit") or "")
            sent.parent = store.create(campaign.name, {**tags, "git_commit": commit})
            save_state(campaign.folder, state)
    tally.run_id = sent.parent
    try:
        while tally.waiting:
            series = tally.waiting[0]
            if sent.series.get(series.key, ["", ""])[1] == series.digest:
                tally.unchanged += 1
            else:
                with store.locked():
                    _send_series(campaign, series, state, sent, store, options)
                tally.sent += 1
            tally.waiting.pop(0)
        with store.locked():
            _send_campaign(campaign, state, sent, store, changed=tally.sent > 0)
    finally:
        with store.locked():
            store.finish(sent.parent, good=not tally.waiting)


def _end_stale(campaign_id: str, sent: Sent, store: Store) -> None:
    """End what a sync that died left RUNNING: finish what had been sent whole, discard the rest."""
    whole = {run for run, _ in sent.series.values()} | {sent.parent}
    for run_id in store.running(campaign_id):
        if run_id in whole:
            store.finish(run_id)
        else:
            store.discard(run_id)


def _send_series(
    campaign: Results, series: Series, state: State, sent: Sent, store: Store, options: TrackingOptions
) -> None:
    tags = {CAMPAIGN_TAG: state.campaign_id, SERIES_TAG: series.key, "campaign": campaign.name, **series.tags}
    start_ms = next((step.timestamp_ms for step in series.steps if step.timestamp_ms), None)
    run_id = store.create(series.name, tags, sent.parent, start_ms)
    try:
        store.log(run_id, series.params, series.steps, series.summary)
        params = json.dumps(dict(series.params), indent=1, sort_keys=True)
        store.attach_text(run_id, {"records.jsonl": series.lines, "params.json": params})
        figures = campaign.folder / "figures" / series.operator / series.dtype
        if options.figures and figures.is_dir():
            store.attach(run_id, figures, "figures")
    except BaseException:
        store.discard(run_id)
        raise
    before = sent.series.get(series.key)
    sent.series[series.key] = [run_id, series.digest]
    save_state(campaign.folder, state)
    end_ms = max((step.timestamp_ms for step in series.steps), default=0)
    store.finish(run_id, good=series.any_passed, end_ms=end_ms or None)
    if before:
        store.discard(before[0])


def _send_campaign(campaign: Results, state: State, sent: Sent, store: Store, *, changed: bool) -> None:
    """The campaign's own values and files; only what differs from what was sent."""
    if sent.parent is None:
        return
    if changed:
        store.log(sent.parent, {}, [], _campaign_summary(campaign))
    for path, digest in _files(campaign.folder):
        name = str(path.relative_to(campaign.folder))
        if sent.artifacts.get(name) != digest:
            inside = str(path.parent.relative_to(campaign.folder))
            store.attach(sent.parent, path, None if inside == "." else inside)
            sent.artifacts[name] = digest
    save_state(campaign.folder, state)


def _files(folder: Path) -> Iterator[tuple[Path, str]]:
    paths = [folder / name for name in (*_ARTIFACTS, *_DIAGNOSIS)]
    for name in _FOLDERS:
        paths += sorted(path for path in (folder / name).rglob("*") if path.is_file())
    for path in paths:
        if path.is_file():
            yield path, hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _campaign_summary(campaign: Results) -> dict[str, float]:
    """Counts of outcomes, and each contestant's mean speedup where all records share one condition."""
    values: dict[str, float] = {"records": float(len(campaign.records))}
    for record in campaign.records:
        name = f"outcome.{record.outcome.value}"
        values[name] = values.get(name, 0.0) + 1
    view = view_of(campaign.records)
    if len(view.conditions) == 1:
        for row in standings(view.under(*view.conditions[0]), view.contestants, campaign.peaks):
            label = row.contestant.label.replace("[", "").replace("]", "").replace("(", "").replace(")", "")
            for name, mean in (("geomean_speedup", row.speedup), ("geomean_utilisation", row.utilisation)):
                if mean.value is not None:
                    values[f"{name}.{label}"] = mean.value
    return values
