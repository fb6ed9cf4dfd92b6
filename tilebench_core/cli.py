"""The command line. Exit status: 0 all planned trials passed or were not applicable, 1 some failed, 2 a wrong request."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tilebench_core.errors import RequestError, TilebenchError, nearest

__all__ = ["main"]

_COMMANDS: dict[str, str] = {
    "run": "measure operators on backends: tilebench run operator=[softmax] backend=[torch,triton]",
    "list": "what is installed: operators × backends × providers, and what is broken",
    "doctor": "what this machine can run, and the command that would mend what it can't",
    "report": "tables, figures and a page from the records of a campaign",
    "compare": "two campaigns, series by series; the exit status tells",
    "inspect": "generated code without a GPU: tilebench inspect operator=softmax arch=[sm_90,sm_100]",
    "profile": "hardware counters by Nsight Compute: tilebench profile campaign=NAME operator=softmax",
    "diagnose": "the largest gaps of a campaign, explained: tilebench diagnose gaps|pages|experiment",
    "peaks": "measure this device's ceilings",
    "tune": "the winners of earlier searches: tilebench tune list|show|clear",
    "sync": "send to MLflow what was not sent",
    "ui": "open MLflow's page on the records",
    "llm": "language models write the kernels: tilebench llm run|report|export|check|prompt",
    "new": "a working skeleton: tilebench new operator|kernel|backend NAME",
}


def _usage() -> str:
    lines = ["usage: tilebench COMMAND ...", ""]
    lines += [f"  {name:8} {text}" for name, text in _COMMANDS.items()]
    return "\n".join([*lines, "", "`tilebench COMMAND --help` says more."])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; print errors as one line."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0] in ("-h", "--help", "help"):
        print(_usage())
        return 0 if given else 2
    if given[0] == "--version":
        from importlib.metadata import version

        print(f"tilebench {version('tilebench')}")
        return 0
    command, rest = given[0], given[1:]
    try:
        if command not in _COMMANDS:
            raise RequestError(
                f"unknown command {command!r}; expected one of {', '.join(_COMMANDS)}.{nearest(command, _COMMANDS)}"
            )
        handler: Callable[[list[str]], int] = globals()[f"_{command}"]
        return handler(rest)
    except TilebenchError as error:
        print(f"tilebench: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("tilebench: stopped; what was measured is kept, and the same command goes on from there", file=sys.stderr)
        return 130


def _parser(command: str, **options: Any) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(prog=f"tilebench {command}", description=_COMMANDS[command], **options)


def _run(arguments: list[str]) -> int:
    from tilebench_core.registry import installed

    if any(argument in ("-h", "--help") for argument in arguments):
        from tilebench_core.help import run_help

        print(run_help())
        return 0
    sweep = [argument for argument in arguments if argument in ("-m", "--multirun")]
    overrides = [argument for argument in arguments if argument not in sweep]
    dry = "--dry-run" in overrides
    overrides = [override for override in overrides if override != "--dry-run"]
    for override in overrides:
        if override.startswith("-") or ("=" not in override and not override.startswith("~")):
            raise RequestError(
                f"{override!r}: expected key=value, such as operator=[softmax]; `tilebench run --help` lists keys"
            )
    registry = installed()
    if sweep:
        from tilebench_core.compose import run_sweep

        return run_sweep(registry, overrides, run_composed)
    from tilebench_core.compose import compose

    return run_composed(compose(registry, overrides), dry=dry)


def run_composed(composed: Mapping[str, Any], dry: bool = False) -> int:
    """Run one composed configuration and show the results; what a sweep does for each of its jobs."""
    from rich.console import Console

    from tilebench_core.display import PlainProgress, TerminalProgress, failures_table, series_table
    from tilebench_core.jobs import execute, prepare
    from tilebench_core.registry import installed

    console = Console()
    if not console.is_terminal:
        console = Console(width=160)  # a pipe has no width; tables are not squeezed for it
    registry = installed()
    job = prepare(registry, composed)
    trials, left = (sum(len(task.trials) for task in tasks) for tasks in (job.plan, job.left))
    where = job.device.name if job.device.is_gpu else "the CPU"
    console.print(
        f"{trials} trials planned on {where}, {trials - left} recorded already, {left} to run", highlight=False
    )
    for number, reason in job.campaign.torn:
        console.print(f"{job.campaign.records_path}:{number}: set aside, no record: {reason}", style="yellow")
    if not trials:
        raise RequestError("nothing to run: no chosen operator has the chosen dtypes and cases")
    if dry:
        return 0
    if console.is_terminal:
        with TerminalProgress(console, len(job.left)) as progress:
            execute(registry, job, progress, lambda line: console.print(line, style="dim", highlight=False))
    else:
        plain = PlainProgress(console, len(job.left))
        execute(registry, job, plain, lambda line: console.print(line, highlight=False))
    planned = {trial.trial_id for task in job.plan for trial in task.trials}
    records = [record for record in job.campaign.records() if record.trial_id in planned]
    console.print(series_table(records))
    failures = failures_table(records)
    if failures is not None:
        console.print(failures)
    _publish(job, console)
    return 1 if any(record.outcome.is_failure for record in records) else 0


def _publish(job: Any, console: Any) -> None:
    """Draw the figures, send the records to MLflow, and say where everything is."""
    console.print(f"records  {job.campaign.records_path}", highlight=False)
    if job.config.figures:
        from tilebench_core.figures import draw_figures
        from tilebench_core.figures.tuning import draw_tuning
        from tilebench_core.plan import planned_operators
        from tilebench_core.registry import installed

        wanted = {operator.name: operator.config.plots for operator, _ in planned_operators(installed(), job.config)}
        drawn = draw_figures(job.campaign.folder, plots=wanted) + draw_tuning(job.campaign.folder)
        if drawn:
            console.print(f"figures  {job.campaign.folder / 'figures'} ({len(drawn)})", highlight=False)
    if job.config.tracking.kind != "none":
        from tilebench_core.tracking import TrackingOptions, sync_campaign

        options = TrackingOptions(**asdict(job.config.tracking))
        console.print(
            f"MLflow   {sync_campaign(job.campaign.folder, options).message}", highlight=False, soft_wrap=True
        )


def _list(arguments: list[str]) -> int:
    parser = _parser("list")
    parser.add_argument("--json", action="store_true", help="print JSON")
    wanted = parser.parse_args(arguments)
    from tilebench_core.devices import find_device
    from tilebench_core.listing import listing, print_listing
    from tilebench_core.registry import installed

    document = listing(installed(), find_device("auto"))
    if wanted.json:
        print(json.dumps({key: document[key] for key in ("backends", "operators", "broken")}, indent=1))
    else:
        print_listing(document)
    return 0


def _doctor(arguments: list[str]) -> int:
    parser = _parser("doctor")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda:N")
    parser.add_argument("--quick", action="store_true", help="leave out the checks that run on the GPU")
    wanted = parser.parse_args(arguments)
    from tilebench_core.doctor import diagnose, print_diagnosis

    checks = diagnose(wanted.device, wanted.quick)
    if wanted.json:
        print(json.dumps(checks, indent=1))
    else:
        print_diagnosis(checks)
    return 1 if any(check["status"] == "fail" for check in checks) else 0


def _report(arguments: list[str]) -> int:
    from tilebench_core.report.command import report_command

    return report_command(_parser("report"), arguments)


def _compare(arguments: list[str]) -> int:
    from tilebench_core.comparison import compare_command

    return compare_command(_parser("compare"), arguments)


def _inspect(arguments: list[str]) -> int:
    from tilebench_core.diagnosis.inspect_command import inspect_command

    return inspect_command(_parser("inspect"), arguments)


def _profile(arguments: list[str]) -> int:
    from tilebench_core.diagnosis.profile_command import profile_command

    return profile_command(_parser("profile"), arguments)


def _diagnose(arguments: list[str]) -> int:
    from tilebench_core.diagnosis.diagnose_command import diagnose_command

    return diagnose_command(_parser("diagnose"), arguments)


def _peaks(arguments: list[str]) -> int:
    from tilebench_core.peaks import peaks_command

    return peaks_command(_parser("peaks"), arguments)


def _tune(arguments: list[str]) -> int:
    from tilebench_core.tune.command import tune_command

    return tune_command(_parser("tune"), arguments)


def _sync(arguments: list[str]) -> int:
    parser = _parser("sync")
    parser.add_argument("campaign", nargs="*", help="campaigns, by name or folder; all of them without a name")
    parser.add_argument("--results-dir", default="results")
    parser.add_argument("--uri", help="a server, e.g. http://host:5000; SQLite beside the results without it")
    wanted = parser.parse_args(arguments)
    from tilebench_core.tracking import sync_command

    return sync_command(wanted.campaign, wanted.results_dir, wanted.uri)


def _ui(arguments: list[str]) -> int:
    parser = _parser("ui")
    parser.add_argument("--results-dir", default="results")
    parser.add_argument("--port", type=int, default=5000)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--no-browser", action="store_true", help="serve the page without opening a browser")
    wanted = parser.parse_args(arguments)
    import subprocess
    import webbrowser

    from tilebench_core.tracking import page_url, ui_command

    command = ui_command(wanted.results_dir, wanted.host, wanted.port)
    url = page_url(wanted.results_dir, wanted.host, wanted.port)
    print(f"the run table, with the columns that matter: {url}", flush=True)
    server = subprocess.Popen(command)
    try:
        if not wanted.no_browser and _answers(wanted.host, wanted.port, server):
            webbrowser.open(url)
        return server.wait()
    finally:
        server.terminate()


def _answers(host: str, port: int, server: Any) -> bool:
    """Wait up to half a minute for the page to be served; False if it is not."""
    import socket
    import time

    for _ in range(60):
        if server.poll() is not None:
            return False
        try:
            with socket.create_connection((host, port), timeout=1):
                return True
        except OSError:
            time.sleep(0.5)  # the server is still starting
    return False


def _llm(arguments: list[str]) -> int:
    from tilebench_core.llm.command import llm_command

    return llm_command(arguments)


def _new(arguments: list[str]) -> int:
    from tilebench_core.scaffold import new_command

    return new_command(_parser("new"), arguments)


if __name__ == "__main__":
    sys.exit(main())
