"""The clocks against each other on a GPU: `python benchmarks/clocks.py --out FOLDER`.

Ten Triton kernels at their largest case: mean busy time by `cupti` and by `proton` (cold cache, CUDA graphs), and the
duration that Nsight Compute reports of launches in the same state (cold by the same flush, clocks left alone). Writes
clocks.json and clocks.md; exits with 1 where the median disagreement exceeds its bound: 1 % between the clocks, 3 %
against Nsight Compute.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

OPERATORS = (
    "vector_add", "relu", "softmax", "layernorm", "mean_reduction", "matrix_transpose",
    "jacobi_stencil_2d", "weight_dequant", "batched_matmul", "2d_conv",
)  # fmt: skip
DTYPE = "fp16"
LAUNCHES = 5
BOUNDS = {"proton": 0.01, "ncu": 0.03}


def campaign(clock: str, folder: Path) -> dict[str, dict[str, Any]]:
    """Measure the ten with `clock`; return the records by operator."""
    command = [
        sys.executable, "-m", "tilebench_core.cli", "run", f"operator=[{','.join(OPERATORS)}]", f"dtype=[{DTYPE}]",
        "backend=[triton]", "cases=[largest]", "timing=paper", f"timing.clock={clock}", "tracking=none", "figures=false",
        "noise_floor=false", f"campaign=clock-{clock}", f"results_dir={folder}",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    if done.returncode:
        raise SystemExit(f"clock {clock}: {done.stdout[-700:]} {done.stderr[-700:]}")
    records = [json.loads(line) for line in (folder / f"clock-{clock}" / "records.jsonl").open()]
    return {record["operator"]: record for record in records}


def launch_each() -> None:
    """Under Nsight Compute: each kernel once to warm up, then `LAUNCHES` times between profiler start and stop."""
    import torch

    from tilebench_core.definition import Draw
    from tilebench_core.registry import installed
    from tilebench_core.testing.kernel_check import select_cases
    from tilebench_core.timing.gpu import CacheFlush

    # Not Nsight Compute's own flush: it leaves a clean cache, and a kernel that must first evict dirty lines takes longer.
    flush = CacheFlush(torch.cuda.get_device_properties(0).L2_cache_size)
    registry = installed()
    backend = registry.backend("triton").value()
    runtime = torch.cuda.cudart()
    for name in OPERATORS:
        operator = registry.operator(name)
        kernel = registry.kernel(operator, "triton").load()
        case = select_cases(operator, DTYPE, "largest")[0]
        inputs = operator.load().inputs(case, Draw("cuda", 0))
        config = kernel.default(case)
        backend.compile(kernel, inputs, config)
        torch.cuda.synchronize()
        runtime.cudaProfilerStart()
        for _ in range(LAUNCHES):
            flush()
            backend.launch(kernel, inputs, config)
        torch.cuda.synchronize()
        runtime.cudaProfilerStop()


def nsight(records: dict[str, dict[str, Any]]) -> dict[str, float]:
    """The mean duration of one call in microseconds by Nsight Compute, kernels of a call summed."""
    command = [
        "ncu", "--profile-from-start", "off", "--cache-control", "none", "--clock-control", "none",
        "--metrics", "gpu__time_duration.sum", "--csv", "--page", "raw", "--print-units", "base",
        sys.executable, str(Path(__file__).resolve()), "--launch-each",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    lines = [line for line in done.stdout.splitlines() if line.startswith('"')]
    rows = [
        row
        for row in csv.DictReader(io.StringIO("\n".join(lines)))
        if (row["ID"] or "").isdigit() and "FillFunctor" not in row["Kernel Name"]  # the flush, where it is a kernel
    ]
    kernels = {name: records[name]["activities"] for name in OPERATORS}
    expected = LAUNCHES * sum(kernels.values())
    if len(rows) != expected:
        raise SystemExit(f"Nsight Compute profiled {len(rows)} kernels, expected {expected}: {done.stdout[-500:]}")
    durations = iter(float(row["gpu__time_duration.sum"].replace(",", "")) / 1e3 for row in rows)
    return {name: sum(next(durations) for _ in range(LAUNCHES * kernels[name])) / LAUNCHES for name in OPERATORS}


def main() -> int:
    """Compare and write; see the module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results/clocks"))
    parser.add_argument("--launch-each", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.launch_each:
        launch_each()
        return 0
    arguments.out.mkdir(parents=True, exist_ok=True)
    cupti, proton = campaign("cupti", arguments.out), campaign("proton", arguments.out)
    ncu = nsight(cupti)
    rows = [
        {"operator": name, "cupti": cupti[name]["mean_us"], "proton": proton[name]["mean_us"], "ncu": ncu[name]}
        for name in OPERATORS
    ]
    medians = {
        f"{a} against {b}": statistics.median(abs(row[a] / row[b] - 1) for row in rows)
        for a, b in (("proton", "cupti"), ("cupti", "ncu"), ("proton", "ncu"))
    }
    device = next(iter(cupti.values()))
    result = {"device": device["device"], "versions": device["versions"], "rows": rows, "median disagreement": medians}
    (arguments.out / "clocks.json").write_text(json.dumps(result, indent=1))
    table = ["| operator (fp16, largest case) | cupti µs | proton µs | Nsight Compute µs |", "|---|---|---|---|"]
    table += [f"| {row['operator']} | {row['cupti']:.2f} | {row['proton']:.2f} | {row['ncu']:.2f} |" for row in rows]
    table += ["", "; ".join(f"{pair}: {value:.2%}" for pair, value in medians.items()) + " (median)"]
    (arguments.out / "clocks.md").write_text("\n".join(table) + "\n")
    print("\n".join(table))
    return int(any(value > BOUNDS["ncu" if "ncu" in pair else "proton"] for pair, value in medians.items()))


if __name__ == "__main__":
    sys.exit(main())
