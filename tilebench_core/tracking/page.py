"""What the command line calls: MLflow's page, and sending later what was not sent."""

from __future__ import annotations

import sys
from pathlib import Path

from tilebench_core.campaign import find_campaign
from tilebench_core.errors import RequestError
from tilebench_core.tracking.options import TrackingOptions, results_store
from tilebench_core.tracking.state import load_state
from tilebench_core.tracking.store import VIEW
from tilebench_core.tracking.sync import sync_campaign

__all__ = ["known_stores", "page_url", "server_command", "sync_command", "ui_command"]


def server_command(options: TrackingOptions, *, host: str = "127.0.0.1", port: int = 5000) -> list[str]:
    """The argv that serves MLflow's page on a SQLite store (see `results_store`); RequestError for any other kind."""
    if options.kind != "sqlite" or not options.uri:
        where = f"open {options.uri}" if options.uri else "nothing is tracked"
        raise RequestError(f"`tilebench ui` serves a SQLite store; tracking.kind is {options.kind}: {where}")
    argv = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", options.uri, "--workers", "1"]
    if options.artifacts:
        argv += ["--artifacts-destination", options.artifacts]
    return [*argv, "--host", host, "--port", str(port)]


def ui_command(results_dir: str | Path, host: str = "127.0.0.1", port: int = 5000) -> list[str]:
    """The argv that serves MLflow's page on the store in `results_dir`; RequestError where there is none."""
    options = results_store(Path(results_dir))
    if options.database is None or not options.database.is_file():
        raise RequestError(f"{options.database}: no such file; `tilebench sync` makes it from the records there")
    return server_command(options, host=host, port=port)


def page_url(results_dir: str | Path, host: str = "127.0.0.1", port: int = 5000) -> str:
    """Where that page shows the series with the columns that matter, or its start where nothing has been sent."""
    uri = results_store(Path(results_dir)).uri
    for path in sorted(Path(results_dir).glob("*/tracking.json")):
        for store, sent in load_state(path.parent).stores.items():
            if sent.experiment_id and store.split("#")[0] == uri:
                return f"http://{host}:{port}/#/experiments/{sent.experiment_id}/runs?viewStateShareKey={VIEW}"
    return f"http://{host}:{port}/"


def known_stores(folder: Path) -> list[TrackingOptions]:
    """The stores that a campaign was sent to before; the SQLite store beside it where there was none."""
    found = []
    for store in load_state(folder).stores:
        uri, _, experiment = store.rpartition("#")
        kind = "sqlite" if uri.startswith("sqlite:") else "server"
        found.append(TrackingOptions(kind=kind, uri=uri, experiment=experiment))
    return found or [results_store(folder.resolve().parent)]


def sync_command(names: list[str], results_dir: str, uri: str | None) -> int:
    """Send campaigns, all of `results_dir` without names; print a line for each. 1 if something could not be sent."""
    found = sorted({path.parent for path in Path(results_dir).glob("*/records.jsonl*")})
    folders = [find_campaign(name, results_dir).folder for name in names] or found
    if not folders:
        raise RequestError(f"no campaign in {results_dir}; --results-dir says where they are")
    kind = "sqlite" if uri is None or uri.startswith("sqlite:") else "server"
    options = results_store(Path(results_dir), TrackingOptions(kind=kind, uri=uri))
    results = [sync_campaign(folder, options) for folder in folders]
    for result in results:
        print(f"{result.campaign}: {result.message}")
    return 0 if all(result.complete for result in results) else 1
