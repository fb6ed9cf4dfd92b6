"""Where to send records: the options of the `tracking` group."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from tilebench_core.errors import ConfigError, nearest

__all__ = ["KINDS", "TrackingOptions", "results_store"]

KINDS = ("sqlite", "server", "none")


@dataclass(frozen=True, kw_only=True)
class TrackingOptions:
    """`kind` is "sqlite" (a file, by default beside the campaigns), "server" (any MLflow server) or "none".

    `artifacts` is the folder that a SQLite store keeps artifacts in (default: `mlartifacts` beside the database);
    a server decides for itself. `figures` also attaches an operator's figures to each of its series. `fsync` makes a
    SQLite store wait for the disk at every commit; without it a power cut can cost the view, which `tilebench sync`
    rebuilds from the records.
    """

    kind: str = "sqlite"
    uri: str | None = None
    experiment: str = "tilebench"
    artifacts: str | None = None
    figures: bool = True
    fsync: bool = False
    timeout_s: float = 10.0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ConfigError(
                f"tracking.kind: {self.kind!r}; expected one of {', '.join(KINDS)}.{nearest(self.kind, KINDS)}"
            )
        if self.kind == "server" and not self.uri:
            raise ConfigError("tracking.uri: missing; a server needs one, such as tracking.uri=http://localhost:5000")
        if self.kind == "sqlite" and self.uri and not self.uri.startswith("sqlite:"):
            raise ConfigError(f"tracking.uri: {self.uri!r}; expected sqlite:///PATH, or choose tracking=server")

    @property
    def database(self) -> Path | None:
        """The file of a SQLite store, once its place is known."""
        return Path((self.uri or "").removeprefix("sqlite:///")) if self.kind == "sqlite" and self.uri else None


def results_store(results_dir: Path, options: TrackingOptions | None = None) -> TrackingOptions:
    """`options` with what is left open filled in: by default `mlflow.db` and `mlartifacts` in `results_dir`."""
    options = options or TrackingOptions()
    if options.kind != "sqlite":
        return options
    options = replace(options, uri=options.uri or f"sqlite:///{results_dir.resolve() / 'mlflow.db'}")
    beside = options.database.resolve().parent if options.database else results_dir.resolve()
    return replace(options, artifacts=options.artifacts or str(beside / "mlartifacts"))
