"""What a cubin of cuTile says of its kernel: resources, PTX and Tile IR."""

from __future__ import annotations

from tilebench_core import Resources
from tilebench_core.diagnosis.cubin import kernel_uses, sections

__all__ = ["cubin_resources", "cubin_texts"]


def cubin_resources(cubin: bytes) -> Resources:
    """Return the resources of the one kernel in `cubin`.

    Tile code has neither local arrays nor calls, so the frame of a thread is what the register allocator spilled. All
    shared memory is declared in the binary: a launch adds none.
    """
    (use,) = kernel_uses(cubin).values()
    return Resources(
        registers=use.registers,
        shared_bytes=use.shared_bytes,
        dynamic_shared_bytes=0,
        spill_bytes=use.frame_bytes,
        stack_bytes=use.frame_bytes,
        threads=use.threads,
    )


def cubin_texts(cubin: bytes) -> dict[str, str]:
    """Return the texts that the compiler left in `cubin` beside the line numbers: "tileir" and "ptx"."""
    texts = {}
    for section in sections(cubin):
        if section.name.startswith(".nv.tileir.debug_txt"):
            texts["tileir"] = section.content.rstrip(b"\0").decode(errors="replace")
        elif section.name == ".nv_debug_ptx_txt":
            texts["ptx"] = section.content.replace(b"\0", b"\n").decode(errors="replace").strip("\n") + "\n"
    return {stage: texts[stage] for stage in ("tileir", "ptx") if stage in texts}
