"""The data types of cases, by the names that users type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilebench_core.errors import RequestError, nearest

if TYPE_CHECKING:
    import torch

__all__ = ["DTYPES", "DType", "dtype_named", "name_of", "torch_dtype"]


@dataclass(frozen=True)
class DType:
    """One data type: its name here, its name in PyTorch, and its size."""

    name: str
    torch_name: str
    size_bytes: int
    is_float: bool


DTYPES = {
    dtype.name: dtype
    for dtype in (
        DType("fp32", "float32", 4, True),
        DType("fp16", "float16", 2, True),
        DType("bf16", "bfloat16", 2, True),
        DType("fp8_e4m3", "float8_e4m3fn", 1, True),
        DType("int8", "int8", 1, False),
        DType("uint8", "uint8", 1, False),
        DType("int32", "int32", 4, False),
        DType("int64", "int64", 8, False),
        DType("bool", "bool", 1, False),
    )
}


def dtype_named(name: str) -> DType:
    """Return the data type called `name`; raise RequestError with the nearest match if there is none."""
    try:
        return DTYPES[name]
    except KeyError:
        raise RequestError(
            f"unknown dtype {name!r}; expected one of {', '.join(DTYPES)}.{nearest(name, DTYPES)}"
        ) from None


def torch_dtype(name: str) -> torch.dtype:
    """Return PyTorch's dtype for `name`, e.g. `torch.float16` for "fp16"."""
    import torch

    found: torch.dtype = getattr(torch, dtype_named(name).torch_name)
    return found


def name_of(dtype: torch.dtype) -> str:
    """Return our name of a PyTorch dtype, e.g. "fp16"; a type that no case has keeps PyTorch's name."""
    torch_name = str(dtype).removeprefix("torch.")
    return next((known.name for known in DTYPES.values() if known.torch_name == torch_name), torch_name)
