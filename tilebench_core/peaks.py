"""`tilebench peaks`: measures this device's ceilings with the tool's own clock, and writes `conf/device/<gpu>.yaml`.

Bandwidths count bytes read plus bytes written over a working set of at least four times the L2 cache. Matrix rates are
the vendor library's, through PyTorch, on random data and large square sizes. The launch floor of a backend is the device
time of its smallest kernel (a vector addition of one element) under graph replay.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tilebench_core.compose import conf_dir
from tilebench_core.device import Device
from tilebench_core.environment import backend_versions, now
from tilebench_core.errors import RequestError
from tilebench_core.registry import Registry, installed
from tilebench_core.roofline import Ceilings, device_slug
from tilebench_core.timing import Clock, clock_named, summarise

if TYPE_CHECKING:
    import torch

__all__ = ["datasheet_of", "measure_ceilings", "peaks_command"]

_REPEAT = 20


@dataclass(frozen=True)
class Bench:
    """Times calls on the GPU with one clock: the median of warm launches, in microseconds."""

    clock: Clock

    def median_us(
        self, call: Callable[[], object], repeat: int = _REPEAT, before: Callable[[], None] | None = None
    ) -> float:
        """The median busy time of `call` over `repeat` launches after three unmeasured ones."""
        for _ in range(3):
            call()
        samples = self.clock.measure([call], [0] * repeat, before or (lambda: None))
        return summarise([sample.busy_us for sample in samples]).median_us


def _bandwidths(bench: Bench, l2_bytes: int) -> dict[str, float]:
    import torch

    large = max(4 * l2_bytes, 2**31)
    source = torch.randn(large // 4, device="cuda")
    target = torch.empty_like(source)
    size = source.numel() * 4
    found = {
        "bandwidth_gbps": 2 * size / bench.median_us(lambda: target.copy_(source)) / 1e3,
        "read_gbps": size / bench.median_us(lambda: torch.sum(source)) / 1e3,
        "write_gbps": size / bench.median_us(lambda: target.fill_(1.0)) / 1e3,
    }
    small = max(1 << 20, l2_bytes // 8) // 4
    near, far = source[:small].clone(), target[:small].clone()
    found["l2_gbps"] = 2 * small * 4 / bench.median_us(lambda: far.copy_(near), 100) / 1e3
    return found


def _matrix_products(size: int) -> dict[str, Callable[[], object]]:
    """Square products by precision class, through the vendor library; classes that this PyTorch lacks are left out."""
    import torch

    def normal(dtype: torch.dtype) -> torch.Tensor:
        return torch.randn(size, size, device="cuda", dtype=torch.float32).to(dtype)

    half, brain, single = normal(torch.float16), normal(torch.bfloat16), normal(torch.float32)
    products: dict[str, Callable[[], object]] = {
        "fp16": lambda: half @ half,
        "bf16": lambda: brain @ brain,
        "tf32": lambda: single @ single,
    }
    if torch.cuda.get_device_capability() >= (8, 9):
        narrow, one = normal(torch.float8_e4m3fn), torch.ones((), device="cuda")
        columns = narrow.t().contiguous().t()
        products["fp8"] = lambda: torch._scaled_mm(narrow, columns, one, one, out_dtype=torch.bfloat16)
    whole = torch.randint(-64, 64, (size, size), device="cuda", dtype=torch.int8)
    columns_int = whole.t().contiguous().t()
    products["int8"] = lambda: torch._int_mm(whole, columns_int)
    return products


def _rates(bench: Bench) -> tuple[dict[str, float], float]:
    import torch

    size = 8192
    torch.backends.cuda.matmul.allow_tf32 = True
    rates = {name: 2 * size**3 / bench.median_us(product) / 1e6 for name, product in _matrix_products(size).items()}
    if "fp8" in rates:
        # Tensor cores multiply 8-bit integers at the rate of 8-bit floats (the datasheets give one figure for both), but
        # the library's integer products stay far below it: kernels have been seen at 1.7 times their rate on an H200.
        rates["int8"] = max(rates["int8"], rates["fp8"])
    torch.backends.cuda.matmul.allow_tf32 = False
    single = torch.randn(4096, 4096, device="cuda")
    vector = 2 * 4096**3 / bench.median_us(lambda: single @ single) / 1e6
    return rates, vector


def _launch_floors(bench: Bench, registry: Registry, device: Device) -> dict[str, float]:
    import torch

    from tilebench_core.case import Case
    from tilebench_core.definition import Draw
    from tilebench_core.timing.gpu import capture

    operator = registry.operator("vector_add")
    case = Case(operator.name, "fp32", {"n": 1}, "edge")
    inputs = operator.load().inputs(case, Draw("cuda", 0))
    floors = {}
    for name, plugin in registry.backends.items():
        backend, sources = plugin.value(), registry.kernels_for(operator, name)
        if not sources or backend.probe(device) is not None:
            continue
        kernel = sources[0].load()
        config = kernel.default(case)
        backend.compile(kernel, inputs, config)
        captured = capture(lambda b=backend, k=kernel, c=config: b.launch(k, inputs, c))  # type: ignore[misc]
        floors[name] = bench.median_us(captured.replay, 100)
    torch.cuda.synchronize()
    return floors


def measure_ceilings(device: Device, registry: Registry) -> Ceilings:
    """Measure the ceilings of the first visible GPU. Takes some seconds and a few gigabytes of its memory."""
    import torch

    clock = clock_named("cupti", {})
    clock.open()
    try:
        bench = Bench(clock)
        torch.manual_seed(0)
        floors = _launch_floors(bench, registry, device)
        bandwidths = _bandwidths(bench, torch.cuda.get_device_properties(0).L2_cache_size)
        rates, vector = _rates(bench)
    finally:
        clock.close()
    return Ceilings(
        source="measured",
        matrix_tflops={name: round(rate, 1) for name, rate in rates.items()},
        vector_tflops=round(vector, 1),
        launch_floor_us={name: round(floor, 3) for name, floor in floors.items()},
        details={
            "when": now(),
            "driver": device.driver,
            "how": "median of 20 launches by CUPTI; matrices 8192³ (fp32 vector rate: 4096³ without TF32); copies of 2 GiB;"
            " int8 by the faster of the 8-bit products",
            "versions": backend_versions(registry.backends.values()),
        },
        bandwidth_gbps=round(bandwidths["bandwidth_gbps"], 1),
        read_gbps=round(bandwidths["read_gbps"], 1),
        write_gbps=round(bandwidths["write_gbps"], 1),
        l2_gbps=round(bandwidths["l2_gbps"], 1),
    )


def datasheet_of(ceilings: dict[str, Any]) -> dict[str, Any]:
    """What a file says of the datasheet: its own block, or all of it where it has not been measured yet."""
    if ceilings.get("source") != "datasheet":
        return dict(ceilings.get("datasheet") or {})
    kept = {name: ceilings.get(name) for name in ("bandwidth_gbps", "matrix_tflops", "vector_tflops")}
    return {name: value for name, value in kept.items() if value} | {"source": ceilings["details"]["datasheet"]}


def peaks_command(parser: argparse.ArgumentParser, arguments: list[str]) -> int:
    """`tilebench peaks`."""
    parser.add_argument("--device", default="auto", help="auto or cuda:N")
    parser.add_argument("--output", type=Path, help="the file to write; conf/device/<gpu>.yaml without it")
    wanted = parser.parse_args(arguments)
    import os

    from tilebench_core.devices import find_device

    device = find_device(wanted.device)
    if not device.is_gpu:
        raise RequestError("peaks measures a GPU and finds none here; `tilebench doctor` says why")
    os.environ["CUDA_VISIBLE_DEVICES"] = device.uuid
    path = wanted.output or conf_dir() / "device" / f"{device_slug(device.name)}.yaml"
    known = yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else {}
    datasheet = datasheet_of(known.get("ceilings") or {})
    ceilings = measure_ceilings(device, installed())
    document: dict[str, Any] = {
        "name": "cuda:0",
        "compile_for": device.arch,
        "ceilings": {**asdict(ceilings), "datasheet": datasheet},
    }
    text = f"# Ceilings of {device.name}, measured by `tilebench peaks`. GB/s, TFLOP/s, µs.\n"
    path.write_text(text + yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    print(yaml.safe_dump(document["ceilings"], sort_keys=False))
    print(f"written to {path}")
    return 0
