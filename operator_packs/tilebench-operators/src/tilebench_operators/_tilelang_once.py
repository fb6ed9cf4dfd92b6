"""Loads of what a TileLang kernel reads once: their lines leave the L2 cache before any other.

A kernel that only reads meets a cache that earlier kernels' results fill. A common load drives these out, and each line that goes
is written to memory, beside what is read. A line that was loaded with this hint makes room for the next one instead. TileLang
gives the hint to copies by TMA only.
"""

from __future__ import annotations

from typing import Any

import tilelang.language as T

__all__ = ["PRELUDE", "load_once"]

PRELUDE = """template <class Word, class Value>
static __device__ __forceinline__ void load_once(Value* to, const Value* from) {
  *reinterpret_cast<Word*>(to) = __ldcs(reinterpret_cast<const Word*>(from));
}
"""
"""What a kernel that calls `load_once` gives to T.Kernel as `prelude`."""

_WORDS = {1: "char", 2: "short", 4: "int", 8: "int2", 16: "int4"}


def load_once(to: Any, source: Any, size: int) -> Any:
    """Load `size` (1, 2, 4, 8 or 16) bytes from the element `source` on, whose address they divide, to `to`, of the same type."""
    return T.call_extern("void", f"load_once<{_WORDS[size]}>", T.address_of(to), T.address_of(source))
