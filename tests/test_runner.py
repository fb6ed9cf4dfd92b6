"""The order in which a runner does things, with a worker and a compiler that only take notes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tilebench_core.campaign import open_campaign
from tilebench_core.compose import compose
from tilebench_core.config import run_config
from tilebench_core.device import CPU
from tilebench_core.plan import make_plan
from tilebench_core.registry import installed
from tilebench_core.run import Progress, Runner


class NotingWorker:
    """Is ready when asked, and ends every case without a record."""

    def __init__(self, notes: list[str]) -> None:
        self.notes = notes
        self.events: list[dict[str, Any]] = [{"event": "ready"}]
        notes.append("worker started")

    def send(self, message: Any) -> None:
        self.notes.append("case sent")
        self.events.append({"event": "done"})

    def next_event(self, deadline: float) -> dict[str, Any]:
        return self.events.pop(0)

    def stop(self) -> None:
        self.notes.append("worker stopped")


class NotingCompiler:
    """Has everything compiled after one wait."""

    idle = False

    def __init__(self, notes: list[str]) -> None:
        self.notes, self.waited = notes, False

    def report(self) -> None:
        pass

    def ready(self, task: Any) -> bool:
        return self.waited

    def wait(self, seconds: float) -> None:
        self.notes.append("compiled")
        self.waited = True

    def finished(self, task: Any) -> None:
        self.notes.append("case done")


class StuckCompiler(NotingCompiler):
    """Compiles nothing more, and still holds every case back."""

    idle = True

    def ready(self, task: Any) -> bool:
        return False


@pytest.mark.parametrize(
    ("compiler", "before"), [(NotingCompiler, ["worker started", "compiled"]), (StuckCompiler, ["worker started"])]
)
def test_the_worker_starts_while_kernels_compile_and_never_waits_for_nothing(tmp_path: Path, compiler, before) -> None:
    registry = installed()
    asked = ["operator=[vector_add]", "backend=[torch]", "dtype=[fp32]", "cases=smoke"]
    tasks = make_plan(registry, run_config(compose(registry, asked)), CPU, {"torch": {"torch": "2"}}, {})
    notes: list[str] = []
    runner = Runner(
        campaign=open_campaign(str(tmp_path), "c"), settings={"limits": {"prepare_s": 1}}, environment={},
        progress=Progress(), precompiler=compiler(notes), start_worker=lambda *_: NotingWorker(notes),
    )  # fmt: skip
    runner.run(tasks)
    runner.close()
    assert notes == [*before, "case sent", "case done", "worker stopped"]
