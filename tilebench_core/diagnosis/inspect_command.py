"""`tilebench inspect operator=… backend=[…] arch=[sm_90,sm_100]`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from tilebench_core.diagnosis.inspection import Inspection, Target, inspect_target
from tilebench_core.diagnosis.request import Request, case_named, dtypes_of, operators_named, parse_request
from tilebench_core.diagnosis.show import markdown_inspections, print_inspections, stage_text, write_code
from tilebench_core.errors import RequestError, nearest
from tilebench_core.packs import Operator
from tilebench_core.records import Record
from tilebench_core.registry import Registry, installed

__all__ = ["inspect_command"]

Key = tuple[str, str, str]

KEYS = ("operator", "backend", "dtype", "case", "arch", "stage", "campaign")
_HELP = """keys: operator=NAME, [A,B] or all · backend=[…] (those that compile without a GPU) · dtype=first, all or […] ·
case=largest, first, smoke or an index, and case.PARAMETER=VALUE · arch=[sm_80,sm_90,sm_100] (sm_90) ·
config.KEY=[A,B] (other configurations side by side) · backends.NAME.OPTION=VALUE · stage=[sass,ptx,…] (print code) ·
campaign=NAME (winning configurations of its records; results are kept in its folder and appear in its report)"""


def inspect_command(parser: argparse.ArgumentParser, arguments: list[str]) -> int:
    """Compile, disassemble and show. Exit status: 0 if everything asked for compiled or is unsupported, else 1."""
    parser.epilog, parser.formatter_class = _HELP, argparse.RawDescriptionHelpFormatter
    parser.add_argument("override", nargs="+", metavar="key=value")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--markdown", action="store_true", help="print Markdown")
    parser.add_argument("--out", type=Path, help="write every stage of every kernel below this folder")
    parser.add_argument("--results-dir", default="results")
    wanted = parser.parse_intermixed_args(arguments)
    request = parse_request(wanted.override, KEYS)
    if "operator" not in request.values:
        raise RequestError("inspect needs operator=…; `tilebench list` shows what is installed")
    registry = installed()
    winners = _winners(request, wanted.results_dir)
    groups = []
    for operator in operators_named(registry, request.many("operator", [])):
        for dtype in dtypes_of(operator, request.many("dtype", ["first"])):
            group = _inspect(registry, request, operator, dtype, winners)
            if not group:
                continue
            groups.append(group)
            if wanted.out:
                write_code(group, wanted.out)
            if "campaign" in request.values:
                from tilebench_core.diagnosis.store import keep_inspections

                keep_inspections(_campaign(request, wanted.results_dir), group)
            _show(group, request, wanted)
    if wanted.json:
        print(json.dumps([inspection.as_json() for group in groups for inspection in group], indent=1))
    if not groups:
        raise RequestError("nothing to inspect: no chosen backend compiles without its device")
    failed = any(i.reason and not i.reason.startswith("unsupported") for group in groups for i in group)
    return 1 if failed else 0


def _show(group: Sequence[Inspection], request: Request, wanted: argparse.Namespace) -> None:
    stages = request.many("stage", [])
    if stages:
        for inspection in group:
            for stage in stages:
                print(stage_text(inspection, stage) or f"// {inspection.target.backend}: no stage {stage}")
    elif wanted.markdown:
        print(markdown_inspections(group))
    elif not wanted.json:
        from rich.console import Console

        console = Console()
        print_inspections(group, console if console.is_terminal else Console(width=160))  # a pipe has no width


def _inspect(
    registry: Registry, request: Request, operator: Operator, dtype: str, winners: Mapping[Key, Record]
) -> list[Inspection]:
    case = case_named(operator, dtype, request.one("case", "largest"), request.params)
    offline = [name for name in registry.backends if _compiles_offline(registry, name)]
    backends = request.many("backend", [name for name in offline if registry.kernels_for(operator, name)])
    found: dict[str, Inspection] = {}
    for arch in request.many("arch", ["sm_90"]):
        for backend in backends:
            winner = winners.get((operator.name, dtype, backend))
            config = winner.config if winner is not None and dict(winner.params) == dict(case.params) else None
            target = Target(operator=operator.name, backend=backend, case=case, arch=arch, config=config)
            for overrides in request.configs:
                options = request.backends.get(backend, {})
                inspection = inspect_target(registry, target, overrides, options, lenient=len(backends) > 1)
                found[json.dumps([backend, arch, inspection.config, inspection.reason], default=str)] = inspection
    _require_used(request, [inspection for inspection in found.values() if inspection.reason is None])
    return list(found.values())


def _require_used(request: Request, inspections: Sequence[Inspection]) -> None:
    """Of several backends each takes the keys that its configuration has; a key that nobody has is a mistake."""
    known = {key for inspection in inspections for key in inspection.config}
    for key in request.config:
        if inspections and key not in known:
            raise RequestError(
                f"config.{key}: no configuration has it; there are {', '.join(known)}.{nearest(key, known)}"
            )


def _compiles_offline(registry: Registry, name: str) -> bool:
    from tilebench_core.backend import Backend

    return registry.backend(name).value.compile_for is not Backend.compile_for


def _campaign(request: Request, results_dir: str) -> Path:
    from tilebench_core.campaign import find_campaign

    return find_campaign(request.one("campaign", ""), results_dir).folder


def _winners(request: Request, results_dir: str) -> Mapping[Key, Record]:
    if "campaign" not in request.values:
        return {}
    from tilebench_core.analysis import load_results
    from tilebench_core.diagnosis.selection import largest_records

    return largest_records(load_results(_campaign(request, results_dir)).records)
