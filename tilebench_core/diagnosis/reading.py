"""Reading a report of Nsight Compute: `python -m tilebench_core.diagnosis.reading REPORT ANSWER [MODULE_DIR]`.

It runs in a process of its own: NVIDIA's `ncu_report` is native code, and what a damaged report does to it must not end
a campaign. The answer is one JSON document: a list of launches.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from tilebench_core.diagnosis.metrics import METRICS, OPCODES, STALL_PREFIX

__all__ = ["HOTTEST", "main", "read_action", "read_report"]

HOTTEST = 12
"""How many program counters are kept, those with the most samples."""


def read_report(module: Any, path: Path) -> list[dict[str, Any]]:
    """The launches of a report, in its order. `module` is `ncu_report`, or something that answers as it does."""
    context = module.load_report(str(path))
    ranges = [context.range_by_idx(number) for number in range(context.num_ranges())]
    return [read_action(found.action_by_idx(index)) for found in ranges for index in range(found.num_actions())]


def read_action(action: Any) -> dict[str, Any]:
    """One launch: names, NVTX ranges, values under our names, the reason of each missing one, stalls, opcodes, hot spots."""
    values: dict[str, float | None] = {}
    missing: dict[str, str] = {}
    for metric in METRICS:
        value, reason = _value(action, metric.candidates)
        values[metric.name] = value
        if value is None:
            missing[metric.name] = reason
    stalls, samples = _samples(action)
    if not stalls:
        missing["stalls"] = "no samples of program counters in the report"
    opcodes = {opcode: int(count) for opcode, count in _instances(action, OPCODES, text=True) if count}
    if not opcodes:
        missing["opcodes"] = f"no {OPCODES} in the report"
    return {
        "name": action.name(action.NameBase_FUNCTION),
        "mangled": action.name(action.NameBase_MANGLED),
        "ranges": sorted(_ranges(action)),
        "values": values, "missing": missing, "stalls": stalls, "opcodes": opcodes,
        "hottest": _hottest(action, samples),
    }  # fmt: skip


def _value(action: Any, candidates: tuple[str, ...]) -> tuple[float | None, str]:
    for name in candidates:
        metric = action.metric_by_name(name)
        if metric is None:
            continue
        value = metric.value()
        if value is None:
            return None, f"{name}: in the report without a value"
        if isinstance(value, str) or not math.isfinite(value):
            return None, f"{name}: its value is {value!r}"
        return value, ""
    return None, f"{candidates[0]}: not in the report"


def _instances(action: Any, name: str, text: bool = False) -> Iterator[tuple[Any, float]]:
    """(correlation id, value) of an instanced metric; nothing where it is absent or has no ids."""
    metric = action.metric_by_name(name)
    if metric is None or not metric.has_correlation_ids():
        return
    ids = metric.correlation_ids()
    for index in range(metric.num_instances()):
        identity = ids.as_string(index) if text else ids.as_uint64(index)
        yield identity, metric.as_double(index)


def _samples(action: Any) -> tuple[dict[str, int], dict[int, dict[str, int]]]:
    """Samples by stall reason, and by address and reason. Samples in which the warp was issued are reason "selected"."""
    by_reason: dict[str, int] = {}
    by_address: dict[int, dict[str, int]] = {}
    for name in action.metric_names():
        if not name.startswith(STALL_PREFIX) or name.endswith("_not_issued"):
            continue
        reason = name.removeprefix(STALL_PREFIX)
        for address, count in _instances(action, name):
            if count:
                by_reason[reason] = by_reason.get(reason, 0) + int(count)
                at = by_address.setdefault(address, {})
                at[reason] = at.get(reason, 0) + int(count)
    return dict(sorted(by_reason.items(), key=lambda item: -item[1])), by_address


def _hottest(action: Any, samples: Mapping[int, Mapping[str, int]]) -> list[dict[str, Any]]:
    chosen = sorted(samples, key=lambda address: -sum(samples[address].values()))[:HOTTEST]
    start = _start(action, min(samples)) if samples else 0
    spots = []
    for address in sorted(chosen):
        source = action.source_info(address)
        reasons = sorted(samples[address].items(), key=lambda item: -item[1])
        spots.append(
            {
                "offset": address - start, "sass": action.sass_by_pc(address) or "", "samples": sum(samples[address].values()),
                "stalls": dict(reasons[:3]), "file": source.file_name() if source else None,
                "line": source.line() if source else None,
            }
        )  # fmt: skip
    return spots


def _start(action: Any, address: int) -> int:
    """The address of the kernel's first instruction: instructions are 16 bytes, and before it there is none."""
    while action.sass_by_pc(address - 16):
        address -= 16
    return address


def _ranges(action: Any) -> set[str]:
    state = action.nvtx_state()
    if state is None:
        return set()
    return {name for number in state.domains() for name in state.domain_by_id(number).push_pop_ranges()}


def main(arguments: list[str]) -> int:
    """Read, and write the answer; exit status 1 with the reason on stderr if the report cannot be read."""
    report, answer = Path(arguments[0]), Path(arguments[1])
    if len(arguments) > 2:
        sys.path.insert(0, arguments[2])
    try:
        module = import_module("ncu_report")
    except ImportError as error:
        print(f"{error}; install it with: pip install 'tilebench[diagnosis]'", file=sys.stderr)
        return 1
    answer.write_text(json.dumps(read_report(module, report), allow_nan=False), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
