"""One run from its composed configuration to its records: what `tilebench run` does, without the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from tilebench_core.campaign import Campaign, open_campaign
from tilebench_core.compose import conf_dir
from tilebench_core.config import RunConfig, run_config
from tilebench_core.device import Device
from tilebench_core.devices import find_device
from tilebench_core.environment import backend_versions, capture_environment
from tilebench_core.plan import CaseTask, make_plan
from tilebench_core.precompile.pool import Precompiler
from tilebench_core.records import Record
from tilebench_core.registry import Registry
from tilebench_core.roofline import ceilings_for
from tilebench_core.run import Progress, Runner, to_do
from tilebench_core.tune.replay import pinned_configs
from tilebench_core.tune.sharing import reach, searched
from tilebench_core.worker.session import session_settings

__all__ = ["Job", "execute", "prepare"]


@dataclass(frozen=True)
class Job:
    """A run that is ready to start: its configuration, device, campaign, plan, and the part that is left to do."""

    config: RunConfig
    composed: Mapping[str, Any]
    device: Device
    campaign: Campaign
    plan: list[CaseTask]
    left: list[CaseTask]
    recorded: list[Record]
    unavailable: Mapping[str, str]
    versions: Mapping[str, Mapping[str, str]]


def prepare(registry: Registry, composed: Mapping[str, Any]) -> Job:
    """Check everything that can be checked before any work, and plan. Raises RequestError in one line."""
    config = run_config(composed)
    if config.tune.kind == "replay" and "tuned" in config.modes:
        pinned_configs(str(config.tune.from_campaign), config.results_dir)
    device = find_device(config.device.name)
    chosen = [registry.backend(name) for name in config.backends]
    unavailable = {}
    for plugin in chosen:
        reason = plugin.value().probe(device)
        if reason is not None:
            unavailable[plugin.name] = reason
    versions = backend_versions(chosen)
    plan = make_plan(registry, config, device, versions, unavailable)
    campaign = open_campaign(config.results_dir, config.campaign)
    recorded = campaign.records()
    left = to_do(plan, recorded, config.rerun)
    return Job(config, composed, device, campaign, plan, left, recorded, unavailable, versions)


def _searched_first(tasks: list[CaseTask], config: RunConfig) -> list[CaseTask]:
    """The tasks, where winners are shared with those first whose case is searched for the others of its kernel."""
    if "tuned" not in config.modes or config.tune.kind == "replay" or config.tune.share == "case":
        return tasks
    groups: dict[tuple[str, str], list[CaseTask]] = {}
    for task in tasks:
        groups.setdefault((task.operator.folder, reach(config.tune.share, task.case.dtype)), []).append(task)
    ordered = []
    for group in groups.values():
        first = searched(group, lambda task: task.operator.config.bytes(task.case), config.tune.share_within)
        ordered += [*first, *(task for task in group if task not in first)]
    return ordered


@contextmanager
def device_lock(device: Device, waiting: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock of a GPU: jobs on one GPU queue and never share it. A CPU needs no lock."""
    if not device.is_gpu:
        yield
        return
    import tempfile

    path = Path(tempfile.gettempdir()) / f"tilebench-{device.uuid}.lock"
    lock = FileLock(path, mode=0o666)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        waiting(f"waiting for {device.name}: another job holds {path}")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def worker_environment(
    registry: Registry, backends: Mapping[str, Mapping[str, Any] | None], device: Device
) -> dict[str, str]:
    """The environment of a process that launches kernels: the device it may see, which it counts as `device.alone`, and what
    the backends, given with their options, need before they are imported."""
    environment = {"PYTHONUNBUFFERED": "1"}
    if device.is_gpu:
        environment["CUDA_VISIBLE_DEVICES"] = device.uuid
    for name, options in backends.items():
        value = registry.backend(name).value
        environment.update(value(value.Options(**dict(options or {}))).environment(device))
    return environment


def execute(registry: Registry, job: Job, progress: Progress, say: Callable[[str], None]) -> list[Record]:
    """Run what is left of the job; return the records of this run. Everything is on disk when it returns."""
    device = job.device
    ceilings = ceilings_for(device.name, conf_dir() / "device") if device.is_gpu else None
    environment_now = capture_environment(device, [registry.backend(name) for name in job.config.backends])
    environment_now["peaks"] = asdict(ceilings) if ceilings else None
    job.campaign.describe(environment_now, job.composed)
    if not job.left:
        return []
    if device.is_gpu and ceilings is None:
        say(f"no ceilings are known for {device.name}: roofline figures stay empty; `tilebench peaks` measures them")
    environment = worker_environment(registry, job.config.backends, device)
    ahead = None
    if device.is_gpu and job.config.precompile:
        ahead = Precompiler(job.left, job.config, device, environment, job.campaign.log_path, say)
    with device_lock(device, say):
        runner = Runner(
            campaign=job.campaign,
            settings=session_settings(job.config, device.alone, ceilings, str(job.campaign.folder)),
            environment=environment,
            progress=progress,
            recycle_after=job.config.worker.recycle_after,
            precompiler=ahead,
        )
        try:
            records = runner.run(_searched_first(job.left, job.config))
            if device.is_gpu and job.config.noise_floor:
                _measure_noise(job, runner, records)
        finally:
            runner.close()
            if ahead is not None:
                ahead.close()
        return records


def _measure_noise(job: Job, runner: Runner, records: list[Record]) -> None:
    """Time up to four cases of one operator, from small to large, against themselves, and keep the noise floor."""
    timed = {r.trial_id for r in records if r.median_us is not None and r.graph and r.mode == "default"}
    tasks = [task.only(timed) for task in job.left if task.only(timed).trials]
    tasks = [replace(task, trials=task.trials[:1]) for task in tasks if task.operator == tasks[0].operator]
    # Small cases are the noisiest: the floor has to hold for them too.
    chosen = [tasks[round(place * (len(tasks) - 1) / 3)] for place in range(4)] if tasks else []
    ratios = runner.noise(chosen)
    if ratios:
        differences = sorted(abs(ratio - 1) for ratio in ratios)
        job.campaign.note(
            noise_floor=differences[int(0.95 * (len(differences) - 1))],
            noise={"operator": chosen[0].operator.name, "backend": chosen[0].trials[0].backend, "ratios": ratios},
        )
