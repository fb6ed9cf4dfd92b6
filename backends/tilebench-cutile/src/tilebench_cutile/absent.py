"""What cuTile asks of a GPU before it compiles, answered where there is none.

cuTile derives a kernel's signature (dtypes, ranks, unit strides, divisibility by 16) from the arguments of a launch, in
C, and refuses to do so without NVIDIA's driver and arrays on a device. Here a driver without a device answers, and
arrays in main memory pass for arrays on a device. So an offline compilation gets the signature that a launch would get.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import types
from collections.abc import Iterator
from typing import Any
from unittest import mock

__all__ = ["absent_gpu", "on_device"]

_DRIVER_MODULE = "cuda.tile._load_libcuda"
_DRIVER_VERSION = 13_000  # CUDA 13.0, the oldest that cuTile accepts
_SUCCESS, _NO_DEVICE = 0, 100  # of CUresult
_DL_CUDA = 2  # of DLDeviceType
_keep_alive: list[Any] = []  # callbacks that C holds pointers to, for the life of the process


@contextlib.contextmanager
def absent_gpu() -> Iterator[None]:
    """Let kernels be prepared for launching on the CPU: `torch.cuda.current_stream()` returns a number, nothing more."""
    import torch

    if torch.cuda.is_available():
        yield
        return
    if _DRIVER_MODULE not in sys.modules:
        sys.modules[_DRIVER_MODULE] = _driver_without_device()
    with mock.patch.object(torch.cuda, "current_stream", return_value=0):
        yield


def on_device(argument: Any) -> Any:
    """Return a kernel's argument with the CPU tensors inside replaced by stand-ins that claim to be on a GPU."""
    import torch

    if isinstance(argument, torch.Tensor) and not argument.is_cuda:
        return _StandIn(argument)
    if isinstance(argument, list | tuple):
        return type(argument)(on_device(item) for item in argument)
    return argument


class _StandIn:
    """A tensor whose DLPack capsule names a CUDA device. cuTile reads dtype, shape, strides and alignment from it."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def __dlpack__(self, **_: Any) -> Any:
        from torch.utils.dlpack import to_dlpack

        capsule = to_dlpack(self.tensor)
        address = _capsule_pointer(capsule, b"dltensor")
        # DLTensor begins with the data pointer (8 bytes), which DLDevice.device_type follows.
        ctypes.c_int32.from_address(address + 8).value = _DL_CUDA
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return _DL_CUDA, 0


def _capsule_pointer(capsule: Any, name: bytes) -> int:
    function = ctypes.pythonapi.PyCapsule_GetPointer
    function.restype, function.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return int(function(capsule, name))


def _driver_without_device() -> types.ModuleType:
    """cuTile's loader of libcuda, with a driver that starts, knows its version, and has no device for the rest."""
    driver_function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int))
    get_address = ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_int, ctypes.c_uint64, ctypes.c_void_p
    )

    def version(result: Any) -> int:
        result[0] = _DRIVER_VERSION
        return _SUCCESS

    answers = {
        b"cuInit": driver_function(lambda _: _SUCCESS),
        b"cuDriverGetVersion": driver_function(version),
    }
    no_device = driver_function(lambda _: _NO_DEVICE)

    def address_of(symbol: bytes, result: Any, _version: int, _flags: int, _status: Any) -> int:
        result[0] = ctypes.cast(answers.get(symbol, no_device), ctypes.c_void_p).value
        return _SUCCESS

    entry = get_address(address_of)
    pointer = ctypes.c_void_p(ctypes.cast(entry, ctypes.c_void_p).value)
    _keep_alive.extend([answers, no_device, entry, pointer])
    module = types.ModuleType(_DRIVER_MODULE)
    module.cuGetProcAddress_v2_ptrptr = ctypes.addressof(pointer)  # type: ignore[attr-defined]  # made here
    return module
