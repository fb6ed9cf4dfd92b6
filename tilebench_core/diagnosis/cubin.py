"""What a cubin says of its kernels. A cubin is a 64-bit ELF file; `cuobjdump -elf` prints the same attributes."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["KernelUse", "Section", "kernel_uses", "sections"]

_CUDA_INFO = 0x7000_0000  # the sh_type of .nv.info
_NO_BITS = 8
_BYTE, _WITH_SIZE = 2, 4  # formats of an attribute: a value of one byte; a size, and that many bytes
_REQUIRED_THREADS, _FRAME_BYTES, _REGISTERS, _BARRIERS = 0x10, 0x11, 0x2F, 0x4C
_BARRIERS_SHIFT, _BARRIERS_MASK = 20, 0x7F  # in sh_flags of .text, where older compilers count barriers


class Section(NamedTuple):
    """One section: sh_type, sh_flags and sh_info as the file has them, its size in bytes and its content."""

    name: str
    kind: int
    flags: int
    info: int
    size: int
    content: bytes


@dataclass(frozen=True, kw_only=True)
class KernelUse:
    """What one kernel uses. `frame_bytes` is a thread's local memory: spills, and arrays indexed at run time."""

    registers: int
    shared_bytes: int
    frame_bytes: int
    barriers: int
    code_bytes: int
    threads: int | None


def sections(cubin: bytes) -> Iterator[Section]:
    """Walk the sections. Raises ValueError for anything but a 64-bit little-endian ELF file."""
    if cubin[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF file")
    (table,) = struct.unpack_from("<Q", cubin, 40)
    entry_bytes, count, names_index = struct.unpack_from("<HHH", cubin, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", cubin, table + entry_bytes * index) for index in range(count)]
    names = headers[names_index][4]
    for name_offset, kind, flags, _, offset, size, _, info, _, _ in headers:
        start = names + name_offset
        name = cubin[start : cubin.index(b"\0", start)].decode()
        yield Section(name, kind, flags, info, size, b"" if kind == _NO_BITS else cubin[offset : offset + size])


def kernel_uses(cubin: bytes) -> dict[str, KernelUse]:
    """Return what each kernel of `cubin` uses, by the kernel's name; functions that kernels call are left out."""
    found = {section.name: section for section in sections(cubin)}
    numbers = {}
    common = found.get(".nv.info")
    for attribute, payload in _attributes(common.content) if common is not None else ():
        if attribute in (_REGISTERS, _FRAME_BYTES):
            symbol, number = struct.unpack_from("<II", payload)
            numbers[attribute, symbol] = number
    uses = {}
    for name, section in found.items():
        kernel = name.removeprefix(".text.")
        own = found.get(f".nv.info.{kernel}")
        if kernel == name or own is None:
            continue
        threads, barriers = None, section.flags >> _BARRIERS_SHIFT & _BARRIERS_MASK
        for attribute, payload in _attributes(own.content):
            if attribute == _REQUIRED_THREADS:
                x, y, z = struct.unpack_from("<III", payload)
                threads = x * y * z
            elif attribute == _BARRIERS:
                barriers = payload[0]
        symbol = section.info & 0xFFFFFF
        shared = found.get(f".nv.shared.{kernel}")
        uses[kernel] = KernelUse(
            registers=numbers.get((_REGISTERS, symbol), section.info >> 24),
            shared_bytes=shared.size if shared else 0,
            frame_bytes=numbers.get((_FRAME_BYTES, symbol), 0),
            barriers=barriers,
            code_bytes=section.size,
            threads=threads,
        )
    return uses


def _attributes(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Walk the attributes of one .nv.info section: attribute and payload."""
    position = 0
    while position + 4 <= len(content):
        form, attribute, value = struct.unpack_from("<BBH", content, position)
        position += 4
        if form == _WITH_SIZE:
            yield attribute, content[position : position + value]
            position += value
        elif form == _BYTE:
            yield attribute, bytes([value & 0xFF])
