"""What a cubin says of its kernels. A cubin is an ELF file; the CUDA toolkit's own reader is not always installed."""

from __future__ import annotations

import struct
from dataclasses import dataclass

__all__ = ["KernelUse", "embedded_cubin", "kernel_uses"]

_EM_CUDA = 190
_REGISTERS = 0x2F04  # attributes of .nv.info whose values are (symbol, number)
_FRAME_BYTES = 0x1104


@dataclass(frozen=True, kw_only=True)
class KernelUse:
    """What one kernel uses. `frame_bytes` is a thread's local memory: spills, and arrays indexed at run time."""

    registers: int
    shared_bytes: int
    frame_bytes: int


def embedded_cubin(library: bytes) -> bytes | None:
    """Return the first cubin inside `library`, a shared library that carries its device code as data."""
    start = library.find(b"\x7fELF")
    while start >= 0:
        if struct.unpack_from("<H", library, start + 18)[0] == _EM_CUDA:
            return library[start:]
        start = library.find(b"\x7fELF", start + 1)
    return None


def kernel_uses(cubin: bytes) -> dict[str, KernelUse]:
    """Return what each kernel of `cubin` uses, by the kernel's name."""
    sections = _sections(cubin)
    numbers = _numbers(cubin, sections)
    uses = {}
    for section, (_, _, info) in sections.items():
        if section.startswith(".text."):
            name, symbol = section.removeprefix(".text."), info & 0xFFFFFF
            uses[name] = KernelUse(
                registers=numbers.get((_REGISTERS, symbol), 0),
                shared_bytes=sections.get(f".nv.shared.{name}", (0, 0, 0))[1],
                frame_bytes=numbers.get((_FRAME_BYTES, symbol), 0),
            )
    return uses


def _sections(elf: bytes) -> dict[str, tuple[int, int, int]]:
    """The sections by name: offset, size, sh_info."""
    (table,) = struct.unpack_from("<Q", elf, 40)
    entry_bytes, count, names_index = struct.unpack_from("<HHH", elf, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", elf, table + i * entry_bytes) for i in range(count)]
    names = headers[names_index][4]
    found = {}
    for name, _, _, _, offset, size, _, info, _, _ in headers:
        end = elf.index(b"\0", names + name)
        found[elf[names + name : end].decode()] = (offset, size, info)
    return found


def _numbers(elf: bytes, sections: dict[str, tuple[int, int, int]]) -> dict[tuple[int, int], int]:
    """The numbers of .nv.info, by attribute and the index of the kernel's symbol."""
    offset, size, _ = sections.get(".nv.info", (0, 0, 0))
    numbers, at = {}, offset
    while at < offset + size:
        attribute, value = struct.unpack_from("<HH", elf, at)
        at += 4
        if attribute & 0xFF == 4:  # the value follows, and `value` is its size; otherwise it was the value itself
            if attribute in (_REGISTERS, _FRAME_BYTES):
                symbol, number = struct.unpack_from("<II", elf, at)
                numbers[attribute, symbol] = number
            at += value
    return numbers
