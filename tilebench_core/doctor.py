"""`tilebench doctor`: what this machine can run, and the command that would mend what it can't."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tilebench_core.device import Device
from tilebench_core.devices import find_device, nvml_handle
from tilebench_core.errors import RequestError
from tilebench_core.listing import backend_status
from tilebench_core.registry import installed

__all__ = ["check", "diagnose", "print_diagnosis"]

_CLOCK_AGREEMENT = 0.02


def check(name: str, status: str, message: str, mend: str = "") -> dict[str, Any]:
    """One finding; `status` is ok, note, warn or fail, `mend` the command that would mend it."""
    return {"check": name, "status": status, "message": message, "mend": mend}


def diagnose(device_name: str, quick: bool) -> list[dict[str, Any]]:
    """Run every check. Those that need the GPU run in a process of their own, for some seconds."""
    try:
        device = find_device(device_name)
    except RequestError as error:
        return [check("device", "fail", str(error), "pip install 'tilebench[gpu]'")]
    checks = list(_machine(device))
    checks += list(_backends(device))
    if device.is_gpu:
        checks += list(_gpu_state(device))
        if not quick:
            checks += _on_the_gpu(device)
    return checks


def _machine(device: Device) -> Iterator[dict[str, Any]]:
    if device.is_gpu:
        memory = device.memory_bytes / 2**30
        yield check("device", "ok", f"{device.name}, {device.arch}, {memory:.0f} GiB, driver {device.driver}")
    else:
        yield check(
            "device",
            "note",
            "no NVIDIA GPU: PyTorch is timed on the CPU, kernels are interpreted or compiled for GPUs that are not here",
        )
    registry = installed()
    yield check("operators", "ok" if registry.operators else "fail", f"{len(registry.operators)} installed",
                "" if registry.operators else "pip install tilebench-operators")  # fmt: skip
    for broken in registry.broken:
        yield check(
            "plugin",
            "fail",
            f"{broken.provider} ({broken.name}): {broken.reason}",
            f"pip install -U {broken.provider.name}",
        )


def _backends(device: Device) -> Iterator[dict[str, Any]]:
    status = {"available": "ok", "interpreted": "note", "unavailable": "note", "not installed": "note"}
    for row in backend_status(installed(), device):
        text = row["reason"] or f"{row['status']}, {row['version']}"
        reason, _, mend = text.rpartition(": ") if row["reason"] and ": pip" in text else (text, "", "")
        yield check(f"backend {row['name']}", status[row["status"]], reason, mend)


def _gpu_state(device: Device) -> Iterator[dict[str, Any]]:
    import pynvml

    from tilebench_core.timing.gpu import device_state

    handle = nvml_handle(device.uuid)
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    free, total = memory.free / 2**30, memory.total / 2**30
    mend = "" if free > total / 2 else "nvidia-smi shows who uses it"
    yield check("memory", "ok" if not mend else "warn", f"{free:.0f} of {total:.0f} GiB are free", mend)
    processes = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    if processes:
        yield check(
            "neighbours", "warn", f"{len(processes)} other processes use this GPU; they disturb timings", "nvidia-smi"
        )
    yield from _profiling()
    state = device_state(handle) or {}
    throttled = state.get("throttled")
    text = f"SM {state.get('sm_clock_mhz')} MHz, {state.get('temperature_c')} °C, {state.get('power_w')} W"
    yield check("throttling", "warn" if throttled else "ok", f"{text}, reasons {state.get('throttle_reasons')}",
                "let it cool, or raise its power limit" if throttled else "")  # fmt: skip
    try:
        current, _ = pynvml.nvmlDeviceGetEccMode(handle)
        yield check("ECC", "ok", "on" if current else "off")
    except pynvml.NVMLError as error:
        yield check("ECC", "note", f"unknown: {error}")


def _profiling() -> Iterator[dict[str, Any]]:
    """Whether counters are allowed, and whether somebody else's profiler will be attached to our worker."""
    parameters = Path("/proc/driver/nvidia/params")  # the driver's, as the NVIDIA README names them
    if parameters.is_file() and "RmProfilingAdminOnly: 1" in parameters.read_text() and os.geteuid() != 0:
        mend = "options nvidia NVreg_RestrictProfilingToAdminUsers=0 in /etc/modprobe.d, or run as root"
        yield check("counters", "warn", "the driver allows hardware counters to administrators only", mend)
    for variable in ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"):
        if variable in os.environ:
            text = f"{variable}={os.environ[variable]} attaches a profiler, and only one can be"
            yield check("profilers", "warn", text, f"unset {variable}")


def _on_the_gpu(device: Device) -> list[dict[str, Any]]:
    """Each clock in a process of its own, then the clocks against each other."""
    found, medians = [], {}
    offered = [name for plugin in installed().backends.values() for name in plugin.value.clocks]
    for name in ("cupti", "events", *offered):
        result = _self_test(name, device)
        found += result["checks"]
        if result["median_us"]:
            medians[name] = result["median_us"]
    spread = max(medians.values()) / min(medians.values()) - 1 if medians else 1.0
    agree = spread <= _CLOCK_AGREEMENT and len(medians) > 1
    text = f"{', '.join(medians) or 'none'}: within {spread:.2%} of each other on one long kernel"
    return [*found, check("clocks agree", "ok" if agree else "warn", text)]


def _self_test(clock: str, device: Device) -> dict[str, Any]:
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": device.uuid}
    command = [sys.executable, "-m", "tilebench_core.selftest", clock]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    except subprocess.TimeoutExpired:
        text, mend = "it did not end within 120 s", "nvidia-smi shows whether the GPU hangs"
        return {"median_us": None, "checks": [check(f"clock {clock}", "fail", text, mend)]}
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        mend = f"python -m tilebench_core.selftest {clock} shows the whole error"
        return {"median_us": None, "checks": [check(f"clock {clock}", "fail", last, mend)]}
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def print_diagnosis(checks: list[dict[str, Any]]) -> None:
    """Print the checks as a table."""
    from rich.console import Console
    from rich.table import Table

    colours = {"ok": "green", "note": "cyan", "warn": "yellow", "fail": "red"}
    table = Table(header_style="bold", pad_edge=False)
    for column in ("check", "", "what was found", "what to type"):
        table.add_column(column, overflow="fold")
    for row in checks:
        table.add_row(row["check"], f"[{colours[row['status']]}]{row['status']}[/]", row["message"], row["mend"])
    Console().print(table)
