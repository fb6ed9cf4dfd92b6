"""CUPTI's activity records, read where CUPTI wrote them.

cupti-python makes a NumPy record of each, which costs some fifty microseconds; a timed launch leaves half a dozen of
them, so that they would cost more than all else together. The layout of the records is still cupti-python's to know, and
so is everything but the reading.
"""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tilebench_core.timing.clock import ClockError

__all__ = ["ActivityBuffers"]

_BUFFER_BYTES = 1 << 20
_REQUESTED = ctypes.CFUNCTYPE(
    None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_size_t)
)
_COMPLETED = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)


def _loaded_library() -> ctypes.CDLL:
    """The libcupti that cupti-python has loaded into this process. Raises OSError if it has not."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.split(maxsplit=5)[-1]
        if "/libcupti.so" in path:
            return ctypes.CDLL(path)
    raise OSError("cupti-python has loaded no libcupti.so")


class ActivityBuffers:
    """Owns CUPTI's buffers. After `activity_flush_all`, `intervals` and `external` hold what was in them.

    `intervals[correlation]` are (start, end) in nanoseconds of the kernels, copies and memsets of one API call;
    `external[correlation]` is the id that was pushed when it was made.
    """

    def __init__(self, cupti: Any) -> None:
        self.intervals: dict[int, list[tuple[int, int]]] = {}
        self.external: dict[int, int] = {}
        self.failure: Exception | None = None
        self._work = _work_layouts(cupti)
        layout = cupti.activity_external_correlation_dtype
        self._correlating = int(cupti.ActivityKind.EXTERNAL_CORRELATION)
        self._places = _places(layout, "external_id", "correlation_id")
        self._library = _loaded_library()
        self._free: list[Any] = []
        self._lent: dict[int, Any] = {}
        # ctypes keeps no reference to a callback that C code holds.
        self._callbacks = _REQUESTED(self._requested), _COMPLETED(self._completed)
        status = self._library.cuptiActivityRegisterCallbacks(*self._callbacks)
        if status != 0:
            raise OSError(f"cuptiActivityRegisterCallbacks returned {status}")

    def _requested(self, buffer: Any, size: Any, max_records: Any) -> None:
        memory = self._free.pop() if self._free else (ctypes.c_uint64 * (_BUFFER_BYTES // 8))()
        address = ctypes.addressof(memory)
        self._lent[address] = memory
        buffer[0], size[0], max_records[0] = address, _BUFFER_BYTES, 0

    def _completed(self, context: Any, stream: int, buffer: int, size: int, valid: int) -> None:
        try:
            self._read_all(buffer, valid)
        except Exception as error:  # ctypes would print it and go on, and launches would seem to have done nothing
            self.failure = error

    def _read_all(self, buffer: int, valid: int) -> None:
        memory = self._lent.pop(buffer)
        record = ctypes.c_void_p(None)
        following = self._library.cuptiActivityGetNextRecord
        start, length = ctypes.c_void_p(buffer), ctypes.c_size_t(valid)
        while valid and following(start, length, ctypes.byref(record)) == 0:
            offset = (record.value or buffer) - buffer
            kind = struct.unpack_from("<I", memory, offset)[0]
            if kind in self._work:
                begin, end, correlation = self._read(memory, offset, "QQI", self._work[kind])
                self.intervals.setdefault(correlation, []).append((begin, end))
            elif kind == self._correlating:
                external, correlation = self._read(memory, offset, "QI", self._places)
                self.external[correlation] = external
        self._free.append(memory)

    @staticmethod
    def _read(memory: Any, offset: int, codes: str, places: Sequence[int]) -> Iterator[int]:
        return (struct.unpack_from(code, memory, offset + place)[0] for code, place in zip(codes, places, strict=True))

    def take(self) -> tuple[dict[int, list[tuple[int, int]]], dict[int, int]]:
        """Return what has been read, and begin anew. Raises ClockError if a buffer could not be read."""
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise ClockError(
                f"clock cupti: its records could not be read: {type(failure).__name__}: {failure}"
            ) from failure
        intervals, external = self.intervals, self.external
        self.intervals, self.external = {}, {}
        return intervals, external


def _work_layouts(cupti: Any) -> Mapping[int, tuple[int, ...]]:
    """Kind → byte offsets of start, end and correlation id.

    The oldest layout that cupti-python knows stands for all: later ones have only been appended to.
    """
    kinds, names = cupti.ActivityKind, ("start", "end", "correlation_id")
    return {
        int(kinds.CONCURRENT_KERNEL): _places(_oldest(cupti, "kernel"), *names),
        int(kinds.MEMCPY): _places(_oldest(cupti, "memcpy"), *names),
        int(kinds.MEMSET): _places(_oldest(cupti, "memset"), *names),
    }


def _oldest(cupti: Any, record: str) -> Any:
    versions = [int(found[1]) for name in dir(cupti) if (found := re.fullmatch(rf"activity_{record}(\d+)_dtype", name))]
    return getattr(cupti, f"activity_{record}{min(versions)}_dtype")


def _places(layout: Any, *names: str) -> tuple[int, ...]:
    return tuple(int(layout.fields[name][1]) for name in names)
