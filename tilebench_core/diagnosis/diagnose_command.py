"""`tilebench diagnose gaps|pages|experiment campaign=NAME …`: from evidence to explanations."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import yaml

from tilebench_core.analysis.results import load_results
from tilebench_core.campaign import Campaign, find_campaign
from tilebench_core.device import Device
from tilebench_core.diagnosis.experiments import (
    Variant,
    conclude,
    keep_experiment,
    kept_experiments,
    moved_grid,
    variants_of,
)
from tilebench_core.diagnosis.gaps import gap_grid, largest_gaps, load_evidence
from tilebench_core.diagnosis.ncu import REPLAYS, NcuFailed, find_ncu
from tilebench_core.diagnosis.pages import write_pages
from tilebench_core.diagnosis.profiles import Profile
from tilebench_core.diagnosis.profiling import Profiler
from tilebench_core.diagnosis.request import Request, parse_request
from tilebench_core.diagnosis.selection import job_of, largest_records
from tilebench_core.diagnosis.store import FOLDER
from tilebench_core.diagnosis.tables import Grid, markdown_grid
from tilebench_core.diagnosis.tools import ToolMissing
from tilebench_core.errors import RequestError, TilebenchError
from tilebench_core.jobs import device_lock, worker_environment
from tilebench_core.records import Record
from tilebench_core.registry import Registry, installed

__all__ = ["diagnose_command"]

KEYS = (
    "campaign",
    "operator",
    "backend",
    "dtype",
    "count",
    "pairs",
    "arch",
    "device",
    "clock",
    "counters",
    "repeat",
    "replay",
    "limit_s",
)
_HELP = """gaps: the table of the largest gaps (count=20, pairs=widest or all) · pages: a page for each (count=10; arch=sm_90 of
the inspections) · experiment: flip one switch of the winning configuration, as config.KEY=VALUE or
backends.NAME.OPTION=VALUE, with campaign, operator, dtype and backend; counters=auto, on or off; repeat=50 samples;
replay=application or kernel, as of `tilebench profile`"""


def diagnose_command(parser: argparse.ArgumentParser, arguments: list[str]) -> int:
    """Exit status: 0 if what was asked for was done, 1 if an experiment could not be carried out."""
    parser.epilog, parser.formatter_class = _HELP, argparse.RawDescriptionHelpFormatter
    parser.add_argument("what", choices=["gaps", "pages", "experiment"])
    parser.add_argument("override", nargs="+", metavar="key=value")
    parser.add_argument("--results-dir", default="results")
    parser.add_argument("--out", type=Path, help="pages: the folder to write to (CAMPAIGN/diagnosis/pages)")
    parser.add_argument("--markdown", action="store_true", help="gaps: print Markdown")
    parser.add_argument("--ncu", help="the path of ncu, if it is not on PATH")
    wanted = parser.parse_intermixed_args(arguments)
    request = parse_request(wanted.override, KEYS)
    if "campaign" not in request.values:
        raise RequestError("diagnose needs campaign=NAME")
    campaign = find_campaign(request.one("campaign", ""), wanted.results_dir)
    if wanted.what == "experiment":
        return _experiment(request, campaign, wanted.ncu)
    results = load_results(campaign.folder)
    every = request.one("pairs", "widest") == "all"
    gaps = largest_gaps(results.records, int(request.one("count", "20" if wanted.what == "gaps" else "10")), every)
    if not gaps:
        raise RequestError("no gaps: the campaign holds no two backends with a valid record of the same largest case")
    if wanted.what == "gaps":
        _print(gap_grid(gaps), wanted.markdown)
        return 0
    evidence = load_evidence(campaign.folder, results, request.one("arch", ""))
    folder = wanted.out or campaign.folder / FOLDER / "pages"
    for path in write_pages(
        gaps, evidence, largest_records(results.records), kept_experiments(campaign.folder / FOLDER), folder
    ):
        print(path)
    return 0


def _print(grid: Grid, markdown: bool) -> None:
    if markdown:
        print(markdown_grid(grid))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=grid.title, title_justify="left")
    for index, name in enumerate(grid.head):
        table.add_column(name, justify="left" if index == 0 else "right", overflow="fold")
    for row in grid.rows:
        table.add_row(*row)
    console = Console()
    (console if console.is_terminal else Console(width=160)).print(table)  # a pipe has no width


def _experiment(request: Request, campaign: Campaign, ncu_path: str | None) -> int:
    """Verify and time both variants in turns, count both where there is ncu, compile both, and keep what moved."""
    from tilebench_core.devices import find_device

    registry = installed()
    record = _base(registry, request, campaign)
    defaults = asdict(registry.backend(record.backend).value.Options())
    switches = {f"config.{key}": values[0] for key, values in request.config.items()}
    switches |= {
        f"backends.{name}.{key}": v for name, options in request.backends.items() for key, v in options.items()
    }
    before, after, *flipped = variants_of(record.config or {}, defaults, record.backend, switches)
    device = find_device(request.one("device", "auto"))
    results, folder = load_results(campaign.folder), campaign.folder / FOLDER
    replay = request.choice("replay", REPLAYS)
    # Options are read when a DSL is imported, so sides that differ in them share no process.
    sides = [[before, after]] if before.options == after.options else [[before], [after]]
    environments = [worker_environment(registry, {record.backend: side[0].options}, device) for side in sides]
    with device_lock(device, print):
        latencies = _latencies(request, record, sides, device, environments, folder)
        profiles = _profiles(request, record, sides, device, environments, folder, replay, ncu_path)
    arch = device.arch if device.is_gpu else "sm_90"
    inspections = [_inspection(record, variant, defaults, arch) for variant in (before, after)]
    floor = results.peaks.floor_us(record.backend)
    experiment = conclude(
        replace(record, device=device.name),
        (flipped[0], flipped[1], flipped[2]),
        latencies,
        profiles,
        inspections,
        floor,
    )
    keep_experiment(folder, experiment)
    _print(moved_grid(experiment), False)
    print(experiment.verdict)
    return 0


def _base(registry: Registry, request: Request, campaign: Campaign) -> Record:
    operator = registry.operator(request.one("operator", ""))
    backend = registry.backend(request.one("backend", "")).name
    records = load_results(campaign.folder).records
    winners = {key: r for key, r in largest_records(records).items() if (key[0], key[2]) == (operator.name, backend)}
    dtype = request.one("dtype", next((key[1] for key in winners), ""))
    found = winners.get((operator.name, dtype, backend))
    if found is None:
        raise RequestError(
            f"the campaign holds no valid record of the largest case of {operator.name} {dtype} on {backend}"
        )
    return found


def _latencies(
    request: Request, record: Record, sides: list[list[Variant]], device: Device,
    environments: list[dict[str, str]], folder: Path,
) -> list[float]:  # fmt: skip
    """Medians before and after, in µs: in turns within a process, or where each side has its own in the order A B B A."""
    if len(sides) == 1:
        return _measured(request, record, sides[0], device, environments[0], folder)
    order = [_measured(request, record, sides[n], device, environments[n], folder)[0] for n in (0, 1, 1, 0)]
    return [(order[0] + order[3]) / 2, (order[1] + order[2]) / 2]


def _measured(
    request: Request,
    record: Record,
    variants: list[Variant],
    device: Device,
    environment: Mapping[str, str],
    folder: Path,
) -> list[float]:
    work = folder / "work"
    work.mkdir(parents=True, exist_ok=True)
    question, answer = work / "measure.json", work / "measure.answer.json"
    answer.unlink(missing_ok=True)
    content = {
        "job": job_of(record, {}).as_json(), "variants": [asdict(variant) for variant in variants],
        "device": device.alone.torch_name, "clock": request.one("clock", "cupti" if device.is_gpu else "cpu"),
        "repeat": int(request.one("repeat", "50")), "environment": dict(environment),
    }  # fmt: skip
    question.write_text(json.dumps(content, default=str), encoding="utf-8")
    limit_s = float(request.one("limit_s", "300"))
    command = [sys.executable, "-m", "tilebench_core.diagnosis.measure", str(question), str(answer)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s)
    except subprocess.TimeoutExpired as error:
        raise TilebenchError(f"the experiment took longer than {limit_s:.0f} s; limit_s=… gives it more") from error
    if not answer.is_file():
        last = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
        raise TilebenchError(f"the experiment's process ended without an answer: {last[:300]}")
    told: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
    if "error" in told:
        raise TilebenchError(f"the experiment failed: {told['error']}")
    return [float(value) for value in told["latencies_us"]]


def _profiles(
    request: Request, record: Record, sides: list[list[Variant]], device: Device,
    environments: list[dict[str, str]], folder: Path, replay: str, ncu_path: str | None,
) -> list[Profile | None]:  # fmt: skip
    """Both variants' counters; None where counters are off, or cannot be had here and were not insisted on."""
    counters = request.one("counters", "auto")
    if counters == "off" or not device.is_gpu:
        return [None, None]
    settings, found = {"metrics": "lean", "replay": replay}, []
    try:
        ncu = find_ncu(ncu_path)
        for side, environment in zip(sides, environments, strict=True):
            jobs = [job_of(replace(record, config=dict(v.config)), settings, v.options) for v in side]
            profiler = Profiler(
                ncu=ncu, folder=folder, device=device.alone.torch_name, environment=environment, replay=replay
            )
            by_key = {profile.job.key: profile for profile in profiler.run(jobs, batch=2)}
            found += [by_key[job.key] for job in jobs]
    except (ToolMissing, NcuFailed) as error:
        if counters == "on":
            raise
        print(f"without counters: {error}")
        return [None, None]
    return list(found)


def _words(values: Mapping[str, Any]) -> list[str]:
    """KEY=VALUE as `parse_request` reads it back: None is null, and a float has a point."""
    shown = {
        name: yaml.safe_dump([value], default_flow_style=True, width=1000).strip() for name, value in values.items()
    }
    return [f"{name}={text[1:-1]}" for name, text in shown.items()]


def _inspection(record: Record, variant: Variant, defaults: Mapping[str, Any], arch: str) -> Mapping[str, Any] | None:
    """The code of a side, or None where it cannot be had: what was measured is kept without it.

    `tilebench inspect` in a process of its own, since a DSL keeps what it compiled under other options.
    """
    chosen = {name: value for name, value in variant.options.items() if value != defaults[name]}
    asked = {"operator": record.operator, "backend": record.backend, "dtype": record.dtype, "arch": arch}
    asked |= {f"case.{name}": value for name, value in record.params.items()}
    asked |= {f"config.{name}": value for name, value in variant.config.items()}
    asked |= {f"backends.{record.backend}.{name}": value for name, value in chosen.items()}
    done = subprocess.run(
        [sys.executable, "-m", "tilebench_core.cli", "inspect", *_words(asked), "--json"],
        capture_output=True,
        text=True,
    )
    try:
        (inspection,) = json.loads(done.stdout)
    except ValueError:
        print(f"without code: {(done.stderr.strip().splitlines() or [f'status {done.returncode}'])[-1][:300]}")
        return None
    found: Mapping[str, Any] = inspection
    return found
