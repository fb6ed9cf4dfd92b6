"""`tilebench llm run|report|export|check|prompt`."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tilebench_core.errors import RequestError, nearest

__all__ = ["llm_command"]

_COMMANDS = {
    "run": "let a model write kernels: tilebench llm run operator=softmax backend=NAME model=... protocol=published|fair",
    "report": "tables, figures and a page from the trajectories of campaigns",
    "export": "the best valid kernels as an installable pack",
    "check": "the compliance check of one file",
    "prompt": "print the prompt of a round without sending anything",
}


def llm_command(arguments: list[str]) -> int:
    """Run one of the commands; see the module."""
    if not arguments or arguments[0] in ("-h", "--help"):
        lines = ["usage: tilebench llm COMMAND ...", "", *(f"  {name:8} {text}" for name, text in _COMMANDS.items())]
        print("\n".join([*lines, "", "docs/llm_track.md is the guide."]))
        return 0 if arguments else 2
    command, rest = arguments[0], arguments[1:]
    if command not in _COMMANDS:
        raise RequestError(
            f"unknown command {command!r}; expected one of {', '.join(_COMMANDS)}.{nearest(command, _COMMANDS)}"
        )
    handler = {"run": _run, "report": _report, "export": _export, "check": _check, "prompt": _prompt}[command]
    return handler(rest)


def _parser(command: str) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(prog=f"tilebench llm {command}", description=_COMMANDS[command])


def _help() -> str:
    from tilebench_core.compose import conf_dir

    folder = conf_dir() / "llm"
    groups = {name: sorted(path.stem for path in (folder / name).glob("*.yaml")) for name in ("protocol", "model")}
    text = (folder / "config.yaml").read_text(encoding="utf-8").split("\n\n", 1)[1]
    return "\n".join([
        "usage: tilebench llm run [-m] operator=... backend=... model=... [key=value ...]", "",
        *(f"  {name:9} {', '.join(choices)}" for name, choices in groups.items()), "", "Keys, with their defaults:",
        *(f"  {line}" for line in text.splitlines()), "",
        "protocol.KEY, model.KEY, timing.KEY, operators.NAME.case_grid.PARAMETER=[...] work alike. -m sweeps, e.g. over models.",
    ])  # fmt: skip


def _overrides(arguments: list[str]) -> list[str]:
    for override in arguments:
        if override.startswith("-") or ("=" not in override and not override.startswith("~")):
            raise RequestError(f"{override!r}: expected key=value; `tilebench llm run --help` lists keys")
    return arguments


def _run(arguments: list[str]) -> int:
    from tilebench_core.compose import compose, run_sweep
    from tilebench_core.registry import installed

    if any(argument in ("-h", "--help") for argument in arguments):
        print(_help())
        return 0
    sweep = [argument for argument in arguments if argument in ("-m", "--multirun")]
    overrides = _overrides([argument for argument in arguments if argument not in sweep])
    if sweep:
        return run_sweep(installed(), overrides, run_composed, llm=True)
    return run_composed(compose(installed(), overrides, llm=True))


@contextmanager
def _graceful() -> Iterator[list[int]]:
    """The first Ctrl-C or SIGTERM lets the current step end; the second interrupts it."""
    heard: list[int] = []

    def hear(number: int, frame: Any) -> None:
        heard.append(number)
        if len(heard) > 1:
            raise KeyboardInterrupt
        print("stopping after this step; once more to stop at once", file=sys.stderr, flush=True)

    before = {number: signal.signal(number, hear) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield heard
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_composed(composed: Mapping[str, Any]) -> int:
    """Run one composed configuration: 0 if every trajectory ended, 1 if some stand still, 130 if the user stopped it."""
    from tilebench_core.llm.report import print_summary
    from tilebench_core.llm.run import execute, prepare
    from tilebench_core.registry import installed

    job = prepare(installed(), composed)
    print(
        f"{len(job.planned)} trajectories with {job.config.model.name} into {job.campaign.folder / 'llm'}", flush=True
    )
    with _graceful() as heard:
        outcome = execute(job, lambda line: print(line, flush=True), lambda: bool(heard))
    print_summary([job.campaign.folder])
    if job.config.tracking.kind != "none":
        _track(job)
    if outcome.stopped:
        print("stopped; the same command goes on from there", file=sys.stderr)
        return 130
    return 1 if outcome.left else 0


def _track(job: Any) -> None:
    from dataclasses import asdict

    from tilebench_core.tracking import TrackingOptions
    from tilebench_core.tracking.llm import sync_llm

    print(f"MLflow   {sync_llm(job.campaign.folder, TrackingOptions(**asdict(job.config.tracking)))}")


def _find(name: str, results_dir: str) -> Path:
    for folder in (Path(name), Path(results_dir) / name):
        if any(folder.glob("llm/*/trajectory.json")):
            return folder
    there = sorted({path.parents[2].name for path in Path(results_dir).glob("*/llm/*/trajectory.json")})
    raise RequestError(
        f"no campaign {name!r} with trajectories here; expected a folder or one of: {', '.join(there) or 'none yet'}"
    )


def _report(arguments: list[str]) -> int:
    parser = _parser("report")
    parser.add_argument("campaign", nargs="+", help="campaigns, by name or folder; one report over all of them")
    parser.add_argument("--out", type=Path, help="the folder to write to (CAMPAIGN/llm-report)")
    parser.add_argument("--results-dir", default="results")
    parser.add_argument("--sync", action="store_true", help="then send the trajectories and this report to MLflow")
    parser.add_argument("--uri", help="a server, e.g. http://host:5000; SQLite beside the results without it")
    wanted = parser.parse_args(arguments)
    from tilebench_core.llm.report import print_summary, write_llm_report

    folders = [_find(name, wanted.results_dir) for name in wanted.campaign]
    print_summary(folders)
    for path in write_llm_report(folders, wanted.out or folders[0] / "llm-report"):
        print(path)
    if wanted.sync:
        from tilebench_core.tracking import TrackingOptions
        from tilebench_core.tracking.llm import sync_llm

        options = TrackingOptions(kind="server" if wanted.uri else "sqlite", uri=wanted.uri)
        for folder in folders:
            print(f"MLflow   {sync_llm(folder, options)}")
    return 0


def _export(arguments: list[str]) -> int:
    parser = _parser("export")
    parser.add_argument("campaign", nargs="+", help="campaigns, by name or folder")
    parser.add_argument("--into", type=Path, default=Path(), help="the folder that the distribution is written into")
    parser.add_argument("--name", help="the distribution's name (tilebench-llm-MODEL)")
    parser.add_argument("--model", help="of several models, the one whose kernels are wanted")
    parser.add_argument("--condition", help="of several conditions, the one that is wanted")
    parser.add_argument("--results-dir", default="results")
    wanted = parser.parse_args(arguments)
    from tilebench_core.llm.export import export_pack

    folders = [_find(name, wanted.results_dir) for name in wanted.campaign]
    root, kernels = export_pack(folders, wanted.into, wanted.name, wanted.model, wanted.condition)
    for line in kernels:
        print(line)
    print(f"pip install {root}")
    return 0


def _check(arguments: list[str]) -> int:
    parser = _parser("check")
    parser.add_argument("file", type=Path)
    parser.add_argument("--backend", help="the DSL; taken from the name impl_<backend>.py without it")
    wanted = parser.parse_args(arguments)
    from tilebench_core.llm.compliance import Verdict, check_source

    backend = wanted.backend or wanted.file.stem.removeprefix("impl_")
    try:
        source = wanted.file.read_text(encoding="utf-8")
    except OSError as error:
        raise RequestError(f"{wanted.file}: {error.strerror}") from error
    found = check_source(source, backend)
    for finding in found.findings:
        print(f"{wanted.file}:{finding.line}: {finding.verdict.text}: {finding.message} ({finding.rule})")
    print(f"{wanted.file}: {found.verdict.text}")
    return 1 if found.verdict is Verdict.VIOLATION else 0


def _prompt(arguments: list[str]) -> int:
    parser = _parser("prompt")
    parser.add_argument(
        "--round", type=int, default=None, help="of a campaign= that ran: the round, from 0; the next without it"
    )
    wanted, overrides = parser.parse_known_args(arguments)
    from tilebench_core.compose import compose
    from tilebench_core.llm.archive import Archive
    from tilebench_core.llm.rounds import read_trajectory
    from tilebench_core.llm.run import prepare, prompter_for
    from tilebench_core.registry import installed

    overrides = _overrides(overrides)
    if not any(override.startswith("model=") for override in overrides):  # a prompt needs no model
        overrides += ["model=scripted", "model.options.script=none"]
    job = prepare(installed(), compose(installed(), overrides, llm=True), sending=False)
    for planned in job.planned:
        prompter = prompter_for(job, planned)
        folder = Path(job.config.results_dir) / (job.config.campaign or "") / "llm" / planned.slug
        if job.config.campaign and (folder / "trajectory.json").is_file():
            archive = Archive.open(folder)
            trajectory = read_trajectory(archive)
            complete = sum(each.complete for each in trajectory.rounds)
            number = complete if wanted.round is None else wanted.round
            if number > complete:
                raise RequestError(f"--round {number}: {planned.slug} has {complete} complete rounds")
            print(prompter.prompt(trajectory, archive, number))
        elif wanted.round:
            raise RequestError(
                f"--round {wanted.round}: there is no campaign= that holds earlier rounds of {planned.slug}"
            )
        else:
            print(prompter.initial(planned.backends))
    return 0
