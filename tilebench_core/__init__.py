"""TileBench: tile-based GPU programming models compared on the same operators, inputs, clock and judge.

The names below are the contracts that packs and backends are written against. Importing this package loads neither
PyTorch nor any DSL.
"""

from tilebench_core.backend import PLUGIN_API, Backend, Compilation, LaunchCode, NoOptions, Resources
from tilebench_core.case import Case
from tilebench_core.definition import Definition, Draw
from tilebench_core.device import Device, multiprocessors
from tilebench_core.errors import CompileError, DeviceOutOfMemory, LaunchError
from tilebench_core.kernel import Config, Kernel
from tilebench_core.outcomes import Outcome

__all__ = [
    "PLUGIN_API",
    "Backend",
    "Case",
    "Compilation",
    "CompileError",
    "Config",
    "Definition",
    "Device",
    "DeviceOutOfMemory",
    "Draw",
    "Kernel",
    "LaunchCode",
    "LaunchError",
    "NoOptions",
    "Outcome",
    "Resources",
    "multiprocessors",
]
