"""What timing does to a CUDA device: evicting its cache, capturing graphs, reading its state."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

__all__ = ["CacheFlush", "Captured", "capture", "device_state"]


class CacheFlush:
    """Evicts the L2 cache by writing twice its size; unknown sizes count as 64 MiB."""

    def __init__(self, l2_bytes: int) -> None:
        import torch

        self.bytes = 2 * (l2_bytes or 64 * 1024 * 1024)
        self._buffer = torch.empty(self.bytes // 4, dtype=torch.int32, device="cuda")
        self._driver = ctypes.CDLL("libcuda.so.1")

    def __call__(self) -> None:
        """Queue the write on the current stream."""
        self._buffer.zero_()

    def reset_persisting(self) -> None:
        """Turn lines that some kernel marked as persisting back into normal ones."""
        self._driver.cuCtxResetPersistingL2Cache()


@dataclass
class Captured:
    """A kernel's launch as a CUDA graph; `outputs` are the tensors that every replay writes."""

    graph: torch.cuda.CUDAGraph
    outputs: Any

    def replay(self) -> None:
        """Replay the graph on the current stream."""
        self.graph.replay()


@functools.cache
def _capture_stream() -> torch.cuda.Stream:
    """The stream that every capture of this process uses: libraries keep a workspace per stream."""
    import torch

    return torch.cuda.Stream()  # type: ignore[no-untyped-call]


def capture(launch: Callable[[], Any]) -> Captured:
    """Capture `launch` in a CUDA graph. Raises whatever the capture raises; the device stays usable.

    Each graph has a memory pool of its own. In a shared one an output of a later graph may lie where an earlier graph
    keeps a temporary, and graphs that are replayed in turns would overwrite one another's results.
    """
    import torch

    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    stream = _capture_stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        launch()  # libraries initialise per stream; that must not happen inside the capture
    torch.cuda.current_stream().wait_stream(stream)
    # torch.cuda.graph would collect garbage and empty the allocator's cache first, which takes longer than the capture.
    with torch.cuda.stream(stream):
        graph.capture_begin()
        try:
            outputs = launch()
        except BaseException:
            with contextlib.suppress(
                RuntimeError
            ):  # the failed capture itself; the launch's own error is the one to tell
                graph.capture_end()
            raise
        graph.capture_end()
    torch.cuda.current_stream().wait_stream(stream)
    return Captured(graph, outputs)


_BENIGN_REASONS = 0x1 | 0x2  # GPU idle, application clocks setting: neither slows a running kernel


def device_state(handle: Any) -> Mapping[str, Any] | None:
    """SM clock, temperature, power and throttle reasons by NVML, or None without it; a value NVML lacks is null."""
    if handle is None:
        return None
    import pynvml

    def read(function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(handle, *arguments)
        except pynvml.NVMLError:
            return None  # not every device answers every question; null says so

    power = read(pynvml.nvmlDeviceGetPowerUsage)
    reasons = read(pynvml.nvmlDeviceGetCurrentClocksEventReasons)
    return {
        "sm_clock_mhz": read(pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_SM),
        "temperature_c": read(pynvml.nvmlDeviceGetTemperature, pynvml.NVML_TEMPERATURE_GPU),
        "power_w": power / 1e3 if power is not None else None,
        "throttle_reasons": reasons,
        "throttled": bool(reasons & ~_BENIGN_REASONS) if reasons is not None else None,
    }
