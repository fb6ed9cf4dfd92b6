"""Synthetic campaigns with everything that real ones contain: failures, ties, missing backends, zero work, two GPUs."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from tilebench_core.outcomes import Outcome
from tilebench_core.records import SCHEMA_VERSION, Record, record_to_json

GPU = "NVIDIA H200"
BANDWIDTH_GBPS, TFLOPS, FLOOR_US = 4000.0, 600.0, 0.6
SIZES = {"fp32": 4, "fp16": 2, "bf16": 2}
CATEGORIES = ("pointwise", "reduction", "matmul", "stencil", "layout")
FACTORS = {"torch": 1.0, "torch_compile": 0.92, "triton": 0.85, "cutile": 0.8, "tilelang": 1.1}


@dataclass(frozen=True)
class Shape:
    """How large a synthetic campaign is, and who takes part."""

    operators: int = 5
    dtypes: tuple[str, ...] = ("fp32", "fp16")
    cases: int = 6
    backends: tuple[str, ...] = ("torch", "triton", "cutile")
    modes: tuple[str, ...] = ("default", "tuned")
    samples: int = 20
    seed: int = 0
    device: str = GPU
    slower: tuple[str, str, float] | None = None  # (operator, backend, factor)
    trouble: bool = True
    spread: float = 0.0  # how differently backends do on different operators


def operator_name(number: int) -> str:
    return f"{CATEGORIES[number % 5]}_{number:02d}"


def _work(category: str, size: int, dtype: str) -> tuple[float, float, dict[str, int]]:
    """(flops, bytes, params)"""
    if category == "matmul":
        n = 128 * size
        return 2.0 * n**3, 3.0 * n * n * SIZES[dtype], {"M": n, "N": n, "K": n}
    n = 4096 * 2**size
    flops = 0.0 if category == "layout" else 2.0 * n
    return flops, 2.0 * n * SIZES[dtype], {"rows": 1024, "cols": n // 1024}


def _roofline(flops: float, count: float) -> float:
    return max(flops / TFLOPS / 1e6, count / BANDWIDTH_GBPS / 1e3)


def _trouble(operator: int, case: int, backend: str, mode: str) -> tuple[Outcome, str] | None:
    if backend == "tilelang" and operator % 3 == 1:
        return Outcome.MISSING, "no installed pack holds a kernel"
    if backend == "cutile" and operator == 2 and case == 0:
        return Outcome.WRONG, "values: 12 of 4096 elements differ by more than the tolerance <b>&amp;</b>"
    if backend == "cutile" and operator == 3:
        return Outcome.UNSUPPORTED, "no scatter in this language"
    if backend == "triton" and operator == 0 and case == 1 and mode == "tuned":
        return Outcome.TIMEOUT, "run took longer than 30 s"
    return None


def synthetic_records(shape: Shape = Shape()) -> list[Record]:
    """Records whose latency is a launch floor plus roofline time over a utilisation, times the backend's factor."""
    random_of = random.Random(shape.seed)
    records = []
    for operator in range(shape.operators):
        category, name = CATEGORIES[operator % 5], operator_name(operator)
        for dtype in shape.dtypes:
            for case in range(shape.cases):
                flops, count, params = _work(category, case + 4, dtype)
                roofline = _roofline(flops, count)
                for backend in shape.backends:
                    for mode in shape.modes:
                        if backend.startswith("torch") and mode == "tuned":
                            continue
                        base = Record(
                            trial_id=f"{shape.device}-{name}-{dtype}-{case}-{backend}-{mode}", operator=name,
                            category=category, dtype=dtype, params=params, backend=backend,
                            provider=f"tilebench-{backend} 0.1.0" if not backend.startswith("torch") else "tilebench 0.1.0",
                            mode=mode, outcome=Outcome.PASSED, case_index=case, precision=dtype, clock="cupti",
                            cache="cold", graph=True, protocol="paper", device=shape.device, flops=flops, bytes=count,
                            versions={"torch": "2.9.0", backend: "1.2.3"}, started="2026-11-29T21:26:00Z",
                            seconds={"compile": 0.5, "timing": 0.1},
                        )  # fmt: skip
                        if shape.trouble and (bad := _trouble(operator, case, backend, mode)):
                            records.append(replace(base, outcome=bad[0], reason=bad[1], check="values"))
                            continue
                        factor = FACTORS.get(backend, 0.9) * (0.9 if mode == "tuned" else 1.0)
                        if shape.trouble and operator == 4 and backend != "torch":
                            factor = 1.0 / (0.9 if mode == "tuned" else 1.0)  # a tie with PyTorch
                            factor *= 0.9 if mode == "tuned" else 1.0
                        taste = random.Random(f"{name} {backend} {dtype}").gauss(0, shape.spread)
                        factor *= 2**taste * (1 - abs(taste) / 3 if mode == "tuned" else 1)
                        if shape.slower and (name, backend) == shape.slower[:2]:
                            factor *= shape.slower[2]
                        centre = (FLOOR_US + roofline / 0.9) * factor
                        samples = tuple(
                            round(centre * (1 + abs(random_of.gauss(0, 0.002))), 4) for _ in range(shape.samples)
                        )
                        ordered = sorted(samples)
                        records.append(
                            replace(
                                base,
                                samples_us=samples,
                                median_us=ordered[len(ordered) // 2],
                                mean_us=sum(samples) / len(samples),
                                min_us=ordered[0],
                                p10_us=ordered[len(ordered) // 10],
                                p90_us=ordered[len(ordered) * 9 // 10],
                                roofline_us=roofline,
                                activities=1,
                                compile_s=0.4,
                                registers=64,
                                config={"BLOCK": 1024, "num_warps": 4},
                                config_source=mode,
                            )
                        )
    return records


def troubled_records() -> list[Record]:
    """Two GPUs in one file, an eager record, another precision, a suspicious one, an older schema, and a second clock."""
    records = synthetic_records(Shape(backends=("torch", "torch_compile", "triton", "cutile", "tilelang")))
    other = synthetic_records(Shape(device="NVIDIA A100", seed=7, operators=2))
    changed = []
    for record in records:
        if record.backend == "triton" and record.outcome is Outcome.PASSED and record.operator == operator_name(1):
            if record.case_index == 2:
                record = replace(record, graph=False, graph_reason="capture failed: stream synchronised")
            elif record.case_index == 3:
                record = replace(record, precision="tf32")
            elif record.case_index == 4:
                record = replace(record, outcome=Outcome.SUSPICIOUS, reason="above 105 % of the measured bandwidth")
        changed.append(record)
    return changed + other


def write_campaign(folder: Path, records: Iterable[Record], **environment: object) -> Path:
    """Write a campaign's folder as a run leaves it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "records.jsonl").write_text("".join(record_to_json(record) + "\n" for record in records))
    device = environment.pop("device", GPU)
    values = {
        "device": {"kind": "cuda", "name": device, "driver": "570.1"},
        "packages": {"tilebench": "0.1.0", "torch": "2.9.0", "numpy": None}, "git_commit": "c45bc77",
        "host": "node-1", "date": "2026-11-29T21:26:00Z",
        "peaks": {"bandwidth_gbps": BANDWIDTH_GBPS, "launch_floor_us": {"torch": 0.6, "triton": 0.6, "cutile": 0.7}},
        "noise_floor": 0.005, **environment,
    }  # fmt: skip
    (folder / "environment.json").write_text(json.dumps(values))
    (folder / "config.yaml").write_text("timing:\n  name: paper\n")
    return folder


def old_line(record: Record) -> str:
    """The record as a schema-version-0 line: without the optional keys that came later."""
    values = json.loads(record_to_json(record))
    for name in ("graph_reason", "protocol", "stop_reason", "iqr_rel", "bimodal", "seconds", "interpreted", "launches"):
        values.pop(name)
    values["schema_version"] = SCHEMA_VERSION - 1
    return json.dumps(values)
