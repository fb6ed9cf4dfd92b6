"""Finding the device without touching it: NVML answers, and no CUDA context is made in this process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tilebench_core.device import CPU, Device
from tilebench_core.errors import RequestError, nearest

__all__ = ["find_device", "nvml_handle", "visible_gpus"]

_INSTALL = "pip install 'tilebench[gpu]'"
_CORES_PER_MULTIPROCESSOR = {(8, 0): 64}  # 128 on everything newer (CUDA C++ Programming Guide, arithmetic throughput)


def _nvml() -> Any:
    """NVML, initialised, or None where there is no NVIDIA driver. Raises RequestError if only its Python package is missing."""
    try:
        import pynvml
    except ImportError:
        if Path("/proc/driver/nvidia/version").exists():
            raise RequestError(
                f"there is an NVIDIA driver, but the package nvidia-ml-py is missing: {_INSTALL}"
            ) from None
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None  # no driver: this machine has no GPU that we could use
    return pynvml


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def visible_gpus() -> list[Device]:
    """The GPUs of this machine, in NVML's order, restricted to CUDA_VISIBLE_DEVICES where that is set."""
    nvml = _nvml()
    if nvml is None:
        return []
    driver = _text(nvml.nvmlSystemGetDriverVersion())
    found = []
    for index in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        capability = tuple(nvml.nvmlDeviceGetCudaComputeCapability(handle))
        found.append(
            Device(
                kind="cuda",
                name=_text(nvml.nvmlDeviceGetName(handle)),
                index=index,
                capability=(capability[0], capability[1]),
                multiprocessors=nvml.nvmlDeviceGetNumGpuCores(handle) // _CORES_PER_MULTIPROCESSOR.get(capability, 128),
                memory_bytes=int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
                driver=driver,
                uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
            )
        )
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if allowed is None:
        return found
    wanted = [entry.strip() for entry in allowed.split(",") if entry.strip()]
    return [gpu for entry in wanted for gpu in found if entry in (str(gpu.index), gpu.uuid)]


def find_device(name: str) -> Device:
    """Return the device that `name` (auto, cpu, cuda, cuda:N) means here; raise RequestError if there is none."""
    if name == "cpu":
        return CPU
    if name not in ("auto", "cuda") and not (name.startswith("cuda:") and name[5:].isdigit()):
        known = ["auto", "cpu", "cuda", "cuda:0"]
        raise RequestError(f"unknown device {name!r}; expected one of {', '.join(known)}.{nearest(name, known)}")
    gpus = visible_gpus()
    if name == "auto":
        return gpus[0] if gpus else CPU
    index = int(name.partition(":")[2] or 0)
    if index >= len(gpus):
        raise RequestError(
            f"device {name!r} is not there: NVML shows {len(gpus)} GPUs; try device=cpu, or `tilebench doctor`"
        )
    return gpus[index]


def nvml_handle(uuid: str) -> Any:
    """NVML's handle of the GPU with `uuid`, or None without NVML."""
    nvml = _nvml()
    return None if nvml is None else nvml.nvmlDeviceGetHandleByUUID(uuid)
