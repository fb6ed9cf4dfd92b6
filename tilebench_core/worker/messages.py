"""What parent and worker tell each other: one JSON object per line over a pair of pipes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import IO, Any

from tilebench_core.case import Case
from tilebench_core.outcomes import Outcome
from tilebench_core.plan import CaseTask, Trial

__all__ = ["Emitter", "TaskMessage", "task_from_json", "task_to_json"]


@dataclass(frozen=True, kw_only=True)
class TaskMessage:
    """A CaseTask as it arrives in the worker: the operator by folder, with the composed configuration."""

    folder: str
    config: Mapping[str, Any]
    case: Case
    trials: tuple[Trial, ...]
    changed: bool


def task_to_json(task: CaseTask) -> dict[str, Any]:
    """The message that asks for `task`."""
    return {
        "folder": task.operator.folder,
        "config": dict(task.operator.config.raw),
        "case": asdict(task.case),
        "trials": [asdict(trial) for trial in task.trials],
        "changed": task.changed,
    }


def task_from_json(message: Mapping[str, Any]) -> TaskMessage:
    """The task that a message asks for."""
    trials = []
    for raw in message["trials"]:
        verdict = raw["verdict"]
        trials.append(Trial(**{**raw, "verdict": (Outcome(verdict[0]), verdict[1]) if verdict else None}))
    return TaskMessage(
        folder=message["folder"],
        config=message["config"],
        case=Case(**message["case"]),
        trials=tuple(trials),
        changed=message["changed"],
    )


class Emitter:
    """The worker's side of the pipe to its parent; every message is flushed at once."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def send(self, event: str, **content: Any) -> None:
        """Send one event."""
        self._stream.write(json.dumps({"event": event, **content}, separators=(",", ":")) + "\n")
        self._stream.flush()

    def step(self, trial_id: str | None, step: str, limit_s: float) -> None:
        """Announce a step before it starts, so that a death or a hang is charged to it."""
        self.send("step", trial=trial_id, step=step, limit_s=limit_s)

    def record(self, line: str) -> None:
        """Hand over a finished record, as its JSON line."""
        self.send("record", line=line)
