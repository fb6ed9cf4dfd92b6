"""Where TileLang keeps device code: a cubin, an ELF file of its own inside a shared library."""

from __future__ import annotations

import struct

__all__ = ["embedded_cubin"]

_EM_CUDA = 190


def embedded_cubin(library: bytes) -> bytes | None:
    """Return the first cubin inside `library`, a shared library that carries its device code as data."""
    start = library.find(b"\x7fELF")
    while start >= 0:
        if struct.unpack_from("<H", library, start + 18)[0] == _EM_CUDA:
            return library[start:]
        start = library.find(b"\x7fELF", start + 1)
    return None
