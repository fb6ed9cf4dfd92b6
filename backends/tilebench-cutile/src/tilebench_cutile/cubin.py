"""What a cubin says of its kernel: resources, PTX and Tile IR.

A cubin is an ELF file. The attributes of a kernel are in its `.nv.info` sections, as `cuobjdump -elf` prints them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from tilebench_core import Resources

__all__ = ["cubin_resources", "cubin_texts"]

_CUDA_INFO = 0x7000_0000  # the sh_type of .nv.info
_WITH_SIZE = 4  # the format of an attribute that a size and a payload follow; the others carry two bytes
_REQUIRED_THREADS, _FRAME_SIZE, _REGISTER_COUNT = 0x10, 0x11, 0x2F

Section = tuple[str, int, int, bytes]
"""Name, sh_type, size and content (empty where the file holds none)."""


def cubin_resources(cubin: bytes) -> Resources:
    """Return the resources of the one kernel in `cubin`; None for what it does not say.

    Tile code has neither local arrays nor calls, so the frame of a thread is what the register allocator spilled.
    """
    registers = frame = threads = None
    shared = 0
    for name, kind, size, content in _sections(cubin):
        if name.startswith(".nv.shared.") and not name.startswith(".nv.shared.reserved"):
            shared += size
        if kind != _CUDA_INFO:
            continue
        for attribute, payload in _attributes(content):
            if attribute == _REGISTER_COUNT:
                registers = struct.unpack_from("<II", payload)[1]
            elif attribute == _FRAME_SIZE:
                frame = struct.unpack_from("<II", payload)[1]
            elif attribute == _REQUIRED_THREADS:
                x, y, z = struct.unpack_from("<III", payload)
                threads = x * y * z
    return Resources(registers=registers, shared_bytes=shared, spill_bytes=frame, stack_bytes=frame, threads=threads)


def cubin_texts(cubin: bytes) -> dict[str, str]:
    """Return the texts that the compiler left in `cubin` beside the line numbers: "tileir" and "ptx"."""
    texts = {}
    for name, _, _, content in _sections(cubin):
        if name.startswith(".nv.tileir.debug_txt"):
            texts["tileir"] = content.rstrip(b"\0").decode(errors="replace")
        elif name == ".nv_debug_ptx_txt":
            texts["ptx"] = content.replace(b"\0", b"\n").decode(errors="replace").strip("\n") + "\n"
    return {stage: texts[stage] for stage in ("tileir", "ptx") if stage in texts}


def _sections(cubin: bytes) -> Iterator[Section]:
    """Walk the section headers of a 64-bit little-endian ELF file."""
    if cubin[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF file")
    (table,) = struct.unpack_from("<Q", cubin, 40)
    entry_size, count, names_index = struct.unpack_from("<HHH", cubin, 58)
    headers = [struct.unpack_from("<IIQQQQ", cubin, table + entry_size * index) for index in range(count)]
    names = headers[names_index][4]
    for name_offset, kind, _flags, _address, offset, size in headers:
        start = names + name_offset
        name = cubin[start : cubin.index(b"\0", start)].decode()
        no_bits = kind == 8
        yield name, kind, size, b"" if no_bits else cubin[offset : offset + size]


def _attributes(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Walk the attributes of one .nv.info section: format, attribute, and two bytes that are a size or the value."""
    position = 0
    while position + 4 <= len(content):
        form, attribute, value = struct.unpack_from("<BBH", content, position)
        position += 4
        if form == _WITH_SIZE:
            yield attribute, content[position : position + value]
            position += value
