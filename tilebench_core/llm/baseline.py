"""The baseline of the speedups: measured once per campaign by the harness, kept in a file, and pinned by its hash."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tilebench_core.campaign import Campaign
from tilebench_core.case import Case
from tilebench_core.device import Device
from tilebench_core.environment import backend_versions
from tilebench_core.errors import RequestError
from tilebench_core.jobs import device_lock, worker_environment
from tilebench_core.llm.config import LlmConfig
from tilebench_core.llm.fingerprint import digest_of
from tilebench_core.llm.recorded import case_key
from tilebench_core.packs import Operator
from tilebench_core.plan import make_plan
from tilebench_core.registry import Registry
from tilebench_core.roofline import Ceilings
from tilebench_core.run import Progress, Runner
from tilebench_core.worker.session import session_settings

__all__ = ["pinned_baseline"]


def pinned_baseline(
    registry: Registry, config: LlmConfig, operator: Operator, cases: Sequence[Case], device: Device, ceilings: Ceilings | None,
    folder: Path, say: Callable[[str], None],
) -> tuple[dict[str, float], str | None]:  # fmt: skip
    """The baseline's time of each case in microseconds, and the hash that pins it. Nothing where nothing can be timed.

    Raises RequestError if a case of the baseline has no time.
    """
    if not device.is_gpu:
        return {}, None
    backend = registry.backend(config.baseline)
    options: dict[str, Any] = {config.baseline: {}}
    dtypes = tuple(dict.fromkeys(case.dtype for case in cases))
    wanted = "largest" if config.protocol.case == "largest" else "grid"
    harness = config.harness(operator.folder, options, dtypes, (wanted,))
    plan = make_plan(registry, harness, device, backend_versions([backend]), {})
    path = folder / f"{operator.folder}-{digest_of([trial.trial_id for task in plan for trial in task.trials])}.json"
    if not path.is_file():
        say(f"measuring the baseline of {operator.name}: {config.baseline}, {len(plan)} cases")
        with tempfile.TemporaryDirectory() as work:
            settings = session_settings(harness, device.alone, ceilings, work)
            runner = Runner(
                campaign=Campaign(Path(work)), settings=settings, environment=worker_environment(registry, options, device),
                progress=Progress(),
            )  # fmt: skip
            try:
                runner.start()
                with device_lock(device, say):
                    records = runner.run(plan)
            finally:
                runner.close()
        times = {case_key(r.dtype, r.params): r.median_us for r in records}
        missing = [r for r in records if r.median_us is None]
        if missing:
            raise RequestError(
                f"the baseline of {operator.name} has no time: {missing[0].outcome.value}: {missing[0].reason}"
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            json.dumps({"backend": config.baseline, "device": device.name, "times_us": times}, indent=1),
            encoding="utf-8",
        )
        path.chmod(0o444)
    content = json.loads(path.read_text(encoding="utf-8"))
    return content["times_us"], digest_of(content)
