"""`tilebench profile campaign=NAME operator=[…] backend=[…]`."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tilebench_core.analysis.points import is_pytorch
from tilebench_core.analysis.results import load_results
from tilebench_core.campaign import find_campaign
from tilebench_core.diagnosis.metrics import SETS
from tilebench_core.diagnosis.ncu import REPLAYS, find_ncu
from tilebench_core.diagnosis.profiling import Profiler
from tilebench_core.diagnosis.request import Request, dtypes_of, operators_named, parse_request
from tilebench_core.diagnosis.selection import ProfileJob, job_of, largest_records
from tilebench_core.diagnosis.store import FOLDER, keep_profile, kept_profiles
from tilebench_core.errors import RequestError
from tilebench_core.jobs import device_lock, worker_environment
from tilebench_core.records import Record
from tilebench_core.registry import Registry, installed

__all__ = ["jobs_of", "profile_command"]

KEYS = ("campaign", "operator", "backend", "dtype", "metrics", "replay", "batch", "limit_s", "device", "tracking")
_HELP = """keys: campaign=NAME · operator=NAME, [A,B] or all · backend=[…] (all but PyTorch's own) · dtype=first, all or […] ·
metrics=lean or full (6 more passes: throughput of whole units) · replay=application (the program runs again for each pass,
caches as they were) or kernel (each kernel is repeated, caches evicted before each pass: faster, less like a real call) ·
batch=N (captures in one process; 1) · limit_s=120 (per capture) · device=cuda:0 · tracking=none · backends.NAME.OPTION=VALUE"""


def profile_command(parser: argparse.ArgumentParser, arguments: list[str]) -> int:
    """Profile what has no verified profile yet. Exit status: 0 if every wanted capture is verified, else 1."""
    parser.epilog, parser.formatter_class = _HELP, argparse.RawDescriptionHelpFormatter
    parser.add_argument("override", nargs="+", metavar="key=value")
    parser.add_argument("--results-dir", default="results")
    parser.add_argument("--ncu", help="the path of ncu, if it is not on PATH")
    parser.add_argument("--plan", action="store_true", help="print what would be profiled, without a GPU")
    wanted = parser.parse_intermixed_args(arguments)
    request = parse_request(wanted.override, KEYS)
    if "campaign" not in request.values:
        raise RequestError("profile needs campaign=NAME: its records say which case and configuration to profile")
    campaign = find_campaign(request.one("campaign", ""), wanted.results_dir)
    registry = installed()
    jobs, left_out = jobs_of(registry, request, load_results(campaign.folder).records)
    for reason in left_out:
        print(reason)
    if not jobs:
        raise RequestError("nothing to profile: the campaign holds no valid record of what was asked for")
    done = kept_profiles(campaign.folder)
    open_jobs = [job for job in jobs if not (job.key in done and done[job.key].verified)]
    print(f"{len(jobs)} captures wanted, {len(jobs) - len(open_jobs)} verified already, {len(open_jobs)} to run")
    if wanted.plan:
        for job in open_jobs:
            print(f"  {job.label}: {dict(job.params)} {dict(job.config)}")
        return 0
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that ncu ends with this process
    failed = _run(registry, request, campaign.folder, open_jobs, wanted.ncu) if open_jobs else 0
    if request.one("tracking", "on") != "none":
        from tilebench_core.tracking import known_stores, sync_campaign

        for options in known_stores(campaign.folder):
            print(f"MLflow   {sync_campaign(campaign.folder, options).message}")
    return 1 if failed else 0


def _run(registry: Registry, request: Request, folder: Path, jobs: list[ProfileJob], ncu_path: str | None) -> int:
    from tilebench_core.devices import find_device

    ncu = find_ncu(ncu_path)
    device = find_device(request.one("device", "cuda:0"))
    if not device.is_gpu:
        raise RequestError("counters need an NVIDIA GPU; `tilebench inspect` shows the generated code without one")
    environment = worker_environment(registry, dict.fromkeys(job.backend for job in jobs), device)
    profiler = Profiler(
        ncu=ncu, folder=folder / FOLDER, device=device.alone.torch_name, environment=environment,
        metrics=request.choice("metrics", SETS), replay=request.choice("replay", REPLAYS),
        limit_s=float(request.one("limit_s", "120")), keep=lambda profile: keep_profile(folder, profile),
        say=lambda line: print(line, flush=True),
    )  # fmt: skip
    with device_lock(device, print):
        profiles = profiler.run(jobs, int(request.one("batch", "1")))
    verified = sum(profile.verified for profile in profiles)
    print(f"{verified} of {len(profiles)} captures verified; {folder / FOLDER / 'profiles.jsonl'}")
    return len(profiles) - verified


def jobs_of(registry: Registry, request: Request, records: Sequence[Record]) -> tuple[list[ProfileJob], list[str]]:
    """The jobs that are asked for, and a line for each one that the campaign cannot give: no valid record, no kernel."""
    winners = largest_records(records)
    measured = list(dict.fromkeys(record.backend for record in records))
    backends = request.many("backend", [name for name in measured if not is_pytorch(name)])
    names = request.many("operator", list(dict.fromkeys(record.operator for record in records)))
    settings = {"metrics": request.one("metrics", "lean"), "replay": request.one("replay", "application")}
    jobs, left_out = [], []
    for operator in operators_named(registry, names):
        recorded = {dtype for name, dtype, _ in winners if name == operator.name}
        dtypes = [dtype for dtype in operator.config.dtypes if dtype in recorded]
        wanted = request.many("dtype", ["first"])
        chosen = dtypes[:1] if wanted == ["first"] else [d for d in dtypes if d in dtypes_of(operator, wanted)]
        if not chosen:
            left_out.append(f"{operator.name}: the campaign holds no valid record of its largest case")
        for dtype in chosen:
            for backend in backends:
                winner = winners.get((operator.name, dtype, backend))
                if winner is None:
                    left_out.append(f"{operator.name} {dtype} {backend}: no valid record of the largest case")
                else:
                    jobs.append(job_of(winner, settings, _options(registry, request.backends, backend)))
    return jobs, left_out


def _options(registry: Registry, given: Mapping[str, Mapping[str, object]], backend: str) -> Mapping[str, object]:
    registry.backend(backend)  # raises RequestError with the nearest match
    return given.get(backend, {})
