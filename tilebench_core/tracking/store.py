"""The one door to MLflow. Nothing is imported before a store is opened, and nothing is said that was not asked for."""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock

from tilebench_core.tracking.options import TrackingOptions
from tilebench_core.tracking.series import Step, clip

if TYPE_CHECKING:
    from mlflow.entities import Metric
    from mlflow.store.artifact.artifact_repo import ArtifactRepository
    from mlflow.tracking import MlflowClient

__all__ = ["CAMPAIGN_TAG", "SERIES_TAG", "VIEW", "Store", "open_store"]

CAMPAIGN_TAG = "tilebench.campaign_id"
SERIES_TAG = "tilebench.series"
VIEW = "tilebench"  # MLflow's page opens with these columns at `#/experiments/<id>/runs?viewStateShareKey=tilebench`
_COLUMNS = {
    "tags": ("operator", "dtype", "backend", "mode"),
    "metrics": ("geomean_latency_us", "geomean_speedup", "geomean_utilisation", "tuning_gain", "pass_rate"),
}
_VIEW_STATE = {
    "searchFilter": "tags.backend != ''", "orderByKey": "metrics.`geomean_speedup`", "orderByAsc": False,
    "startTime": "ALL", "lifecycleFilter": "Active", "datasetsFilter": [], "modelVersionFilter": "All Runs",
    "selectedColumns": [f"{kind}.`{name}`" for kind, names in _COLUMNS.items() for name in names],
    "runsExpanded": {}, "runsPinned": [], "runsHidden": [], "runListHidden": False, "viewMaximized": False,
    "groupBy": None, "groupsExpanded": {}, "useGroupedValuesInCharts": True, "hideEmptyCharts": True,
    "globalLineChartConfig": {"xAxisKey": "step", "lineSmoothness": 0}, "autoRefreshEnabled": False,
    "runsHiddenMode": "FIRST_10_RUNS", "runsVisibilityMap": {},
}  # fmt: skip
BATCH = 900  # MLflow takes up to 1,000 metrics, 100 parameters and 100 tags at once
LOCK_TIMEOUT_S = 120.0

_QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ENABLE_ASYNC_LOGGING": "false",
    "MLFLOW_LOGGING_LEVEL": "CRITICAL",
    "GIT_PYTHON_REFRESH": "quiet",
}


class Store:
    """An open MLflow store. A SQLite store is written by one process at a time, which waits for the others."""

    def __init__(self, client: MlflowClient, experiment_id: str, lock: FileLock | None, uri: str | None) -> None:
        self._client = client
        self._uri = uri
        self._places: dict[str, str] = {}
        self._lock = lock
        self.experiment_id = experiment_id

    def locked(self) -> FileLock | nullcontext[None]:
        """Hold the store for a group of writes."""
        return self._lock or nullcontext()

    def exists(self, run_id: str) -> bool:
        """True where the store still has the run."""
        from mlflow.exceptions import MlflowException

        try:
            return bool(self._client.get_run(run_id).info.lifecycle_stage == "active")
        except MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                return False
            raise

    def create(self, name: str, tags: Mapping[str, str], parent: str | None = None, start_ms: int | None = None) -> str:
        """Create a run and return its id."""
        tags = {key: clip(value, 4900) for key, value in tags.items() if value}
        if parent:
            tags["mlflow.parentRunId"] = parent
        info = self._client.create_run(self.experiment_id, start_ms, tags, name).info
        self._places[info.run_id] = info.artifact_uri
        return str(info.run_id)

    def _artifacts(self, run_id: str) -> ArtifactRepository:
        """Where the run's files go; remembered, since asking for it costs as much as sending them."""
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

        if run_id not in self._places:
            self._places[run_id] = self._client.get_run(run_id).info.artifact_uri
        return get_artifact_repository(self._places[run_id], tracking_uri=self._uri)

    def log(self, run_id: str, params: Mapping[str, str], steps: Sequence[Step], summary: Mapping[str, float]) -> None:
        """Log parameters (cut to what MLflow takes), the steps of metrics, and single values."""
        from mlflow.entities import Metric, Param

        now = int(time.time() * 1000)
        metrics: list[Metric] = [Metric(s.metric, s.value, s.timestamp_ms or now, s.step) for s in steps]
        metrics += [Metric(name, value, now, 0) for name, value in summary.items()]
        entries = [Param(name, clip(value)) for name, value in params.items()]
        self._client.log_batch(run_id, metrics[:BATCH], entries[:100])
        for start in range(BATCH, len(metrics), BATCH):
            self._client.log_batch(run_id, metrics[start : start + BATCH])

    def attach_text(self, run_id: str, texts: Mapping[str, str]) -> None:
        """Attach files, given as name and text."""
        with tempfile.TemporaryDirectory() as folder:
            for name, text in texts.items():
                (Path(folder) / name).write_text(text, encoding="utf-8")
            self._artifacts(run_id).log_artifacts(folder)  # type: ignore[no-untyped-call]  # MLflow's

    def attach(self, run_id: str, path: Path, folder: str | None = None) -> None:
        """Attach a file, or all files of a folder."""
        if path.is_dir():
            self._artifacts(run_id).log_artifacts(str(path), folder)  # type: ignore[no-untyped-call]  # MLflow's
        else:
            self._artifacts(run_id).log_artifact(str(path), folder)  # type: ignore[no-untyped-call]  # MLflow's

    def finish(self, run_id: str, *, good: bool = True, end_ms: int | None = None) -> None:
        """End the run as FINISHED or FAILED, at the moment of its last measurement where that is known."""
        self._client.set_terminated(run_id, "FINISHED" if good else "FAILED", end_ms)

    def discard(self, run_id: str) -> None:
        """Fail the run and delete it: it is incomplete, or its successor has been written."""
        self._client.set_terminated(run_id, "FAILED")
        self._client.delete_run(run_id)

    def running(self, campaign_id: str) -> list[str]:
        """The campaign's runs that an earlier sync left RUNNING."""
        where = f"tags.`{CAMPAIGN_TAG}` = '{campaign_id}' and attributes.status = 'RUNNING'"
        found, token = [], None
        while True:
            page = self._client.search_runs([self.experiment_id], where, max_results=1000, page_token=token)
            found += [str(run.info.run_id) for run in page]
            token = page.token
            if not token:
                return found


@contextmanager
def _quietly(options: TrackingOptions) -> Iterator[None]:
    """Set, for the time of a sync, what keeps MLflow silent and makes it give up on a dead server soon."""
    wanted = {
        **_QUIET,
        "MLFLOW_HTTP_REQUEST_TIMEOUT": str(int(options.timeout_s)),
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
        "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    }
    missing = {name: value for name, value in wanted.items() if name not in os.environ}
    os.environ.update(missing)
    import mlflow.tracking  # noqa: F401  # it sets the level of its logger when it is first imported

    loggers = [logging.getLogger(name) for name in ("mlflow", "alembic", "urllib3")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        for name in missing:
            os.environ.pop(name, None)


def _check_alive(options: TrackingOptions) -> None:
    """Raise OSError at once where a server does not answer, instead of after MLflow's retries."""
    if options.uri and options.uri.startswith("http"):
        with urllib.request.urlopen(f"{options.uri.rstrip('/')}/health", timeout=options.timeout_s):
            pass


@contextmanager
def _without_fsync(options: TrackingOptions) -> Iterator[None]:
    """Let commits to a SQLite store return before the disk has them, unless `options.fsync`: ten times faster."""
    if options.fsync or not options.database:
        yield
        return
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    def relax(connection: sqlite3.Connection, _: object) -> None:
        if isinstance(connection, sqlite3.Connection):
            connection.execute("PRAGMA synchronous=OFF")

    event.listen(Engine, "connect", relax)
    try:
        yield
    finally:
        event.remove(Engine, "connect", relax)


@contextmanager
def open_store(options: TrackingOptions) -> Iterator[Store]:
    """Open the store and find or create its experiment; a SQLite file and its folders are created."""
    with _quietly(options), _without_fsync(options):
        _check_alive(options)
        lock = None
        if options.database:
            options.database.parent.mkdir(parents=True, exist_ok=True)
            lock = FileLock(f"{options.database}.lock", timeout=LOCK_TIMEOUT_S)
        with lock or nullcontext():  # eight processes must not create the same tables at once
            from mlflow.tracking import MlflowClient

            client = MlflowClient(tracking_uri=options.uri)
            experiment_id = _experiment(client, options)
        yield Store(client, experiment_id, lock, options.uri)


def _experiment(client: MlflowClient, options: TrackingOptions) -> str:
    from mlflow.exceptions import MlflowException

    found = client.get_experiment_by_name(options.experiment)
    if found is None:
        place = Path(options.artifacts).resolve().as_uri() if options.artifacts and options.database else None
        try:
            created = str(client.create_experiment(options.experiment, place))
            client.set_experiment_tag(created, f"mlflow.sharedViewState.{VIEW}", json.dumps(_VIEW_STATE))
            return created
        except MlflowException:  # another client of the server was faster
            found = client.get_experiment_by_name(options.experiment)
            if found is None:
                raise
    if found.lifecycle_stage != "active":
        client.restore_experiment(found.experiment_id)
    return str(found.experiment_id)
