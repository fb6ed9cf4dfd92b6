"""What the framework itself costs: `python benchmarks/framework.py`. Exits with 1 if a bound is missed.

Start-up of `list`, `doctor` and `--help`, planning 17,600 trials, appending records, and MLflow per series. Seconds of
start-up are the best of three, since a busy machine can only add to them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))


def best_of(times: int, run: Callable[[], object]) -> float:
    """The shortest of several runs, in seconds."""
    seconds = []
    for _ in range(times):
        begun = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - begun)
    return min(seconds)


def start_up(*arguments: str) -> float:
    """Seconds that one command takes as a process of its own."""
    command = [sys.executable, "-m", "tilebench_core.cli", *arguments]
    return best_of(3, lambda: subprocess.run(command, capture_output=True, check=False, timeout=60))


def planning() -> tuple[int, float]:
    """Plan 44 operators × 2 dtypes × 20 cases × 5 backends × 2 modes; return trials and seconds."""
    from packs import registry_of, write_operator

    from tilebench_core.config import run_config
    from tilebench_core.device import CPU
    from tilebench_core.plan import make_plan

    with tempfile.TemporaryDirectory() as folder:
        pack = Path(folder) / "pack"
        for number in range(44):
            write_operator(pack, f"operator_{number:02d}", n=str(list(range(8, 28))), kernels=("torch", "b", "c", "d"))
        registry = registry_of(pack, backends=("torch", "b", "c", "d", "e"))
        operators = {o.folder: {**o.config.raw, "case_grid": o.config.axes} for o in registry.operators.values()}
        config = run_config({
            "operators": operators, "backends": {name: {} for name in registry.backends},
            "mode": ["default", "tuned"], "tune": {"kind": "shared"},
        })  # fmt: skip
        tasks = make_plan(registry, config, CPU, {}, {})
        seconds = best_of(3, lambda: make_plan(registry, config, CPU, {}, {}))
    return sum(len(task.trials) for task in tasks), seconds


def appending() -> float:
    """Records per second, each on its way to the disk before the next."""
    from synthetic import Shape, synthetic_records

    from tilebench_core.records import RecordWriter

    records = synthetic_records(Shape(samples=40))[:2000]
    with tempfile.TemporaryDirectory() as folder:
        writer = RecordWriter(Path(folder) / "records.jsonl")

        def append_all() -> None:
            for record in records:
                writer.append(record)

        seconds = best_of(3, append_all)
        writer.close()
    return len(records) / seconds


def tracking() -> tuple[int, float]:
    """Milliseconds that MLflow takes per series, in a store that has its tables already; figures are left out."""
    from synthetic import Shape, synthetic_records, write_campaign

    from tilebench_core.tracking import sync_campaign

    records = synthetic_records(Shape(operators=8, cases=20))
    with tempfile.TemporaryDirectory() as folder:
        sync_campaign(write_campaign(Path(folder) / "first", records[:1]))
        campaign = write_campaign(Path(folder) / "second", records)
        begun = time.perf_counter()
        result = sync_campaign(campaign)
        seconds = time.perf_counter() - begun
        assert result.complete, result.message
    series = len({record.series for record in records})
    return series, seconds / series * 1e3


def main() -> int:
    """Measure, print, and compare with the bounds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    wanted = parser.parse_args()
    rows: list[tuple[str, float, str, float, bool]] = []
    for arguments in (["list"], ["list", "--json"], ["doctor", "--quick"], ["--help"], ["run", "--help"]):
        seconds = start_up(*arguments)
        rows.append((f"tilebench {' '.join(arguments)}", seconds, "s", 0.5, seconds <= 0.5))
    trials, seconds = planning()
    rows.append((f"planning {trials} trials", seconds, "s", 2.0, seconds <= 2.0))
    rate = appending()
    rows.append(("appending records", rate, "records/s", 5000, rate >= 5000))
    series, milliseconds = tracking()
    rows.append((f"MLflow, {series} series", milliseconds, "ms/series", 60, milliseconds <= 60))
    if wanted.json:
        keys = ("what", "measured", "unit", "bound", "met")
        print(json.dumps([dict(zip(keys, row, strict=True)) for row in rows], indent=1))
    else:
        for what, measured, unit, bound, met in rows:
            print(f"{what:28} {measured:10.3g} {unit:10} bound {bound:g} {'' if met else 'MISSED'}")
    return 0 if all(row[-1] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
