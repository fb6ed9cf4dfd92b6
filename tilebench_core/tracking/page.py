"""The command that serves MLflow's page."""

from __future__ import annotations

import sys

from tilebench_core.errors import RequestError
from tilebench_core.tracking.options import TrackingOptions

__all__ = ["ui_command"]


def ui_command(options: TrackingOptions, *, host: str = "127.0.0.1", port: int = 5000) -> list[str]:
    """The argv that serves MLflow's page on a SQLite store (see `results_store`); RequestError for any other kind."""
    if options.kind != "sqlite" or not options.uri:
        where = f"open {options.uri}" if options.uri else "nothing is tracked"
        raise RequestError(f"`tilebench ui` serves a SQLite store; tracking.kind is {options.kind}: {where}")
    argv = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", options.uri, "--workers", "1"]
    if options.artifacts:
        argv += ["--artifacts-destination", options.artifacts]
    return [*argv, "--host", host, "--port", str(port)]
