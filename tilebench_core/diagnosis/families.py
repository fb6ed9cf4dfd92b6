"""Families of SASS instructions: what an opcode does, and how wide its memory access is.

The names of opcodes are NVIDIA's (CUDA Binary Utilities, instruction set reference). An opcode that no rule knows is in
the family `other`, which tables list by name: nothing is dropped.
"""

from __future__ import annotations

import re

__all__ = ["FAMILIES", "OTHER", "PADDING", "access_bits", "base_opcode", "family_of"]

OTHER = "other"
PADDING = "padding"

_OPCODES: dict[str, str] = {
    "integer and address": "BMSK BREV FLO IABS IADD IADD2 IADD3 IADD32I IADD64 IDP IDP4A IMAD IMNMX IMUL IMUL32I ISCADD LEA LOP"
    " LOP3 LOP32I POPC SGXT SHF SHL SHR VABSDIFF VABSDIFF4 VADD VIADD VIADDMNMX VIMNMX VIMNMX3 VSHL VSHR XMAD SCATTER GATHER"
    " GENMETADATA SPMETADATA",
    "predicate and select": "CSET CSETP DSET DSETP FSEL FSET FSETP HSET2 HSETP2 ISET ISETP P2R PLOP3 PSET PSETP R2P SEL VSETP",
    "floating point": "DADD DFMA DMNMX DMUL FADD FADD2 FADD32I FCHK FFMA FFMA2 FFMA32I FMNMX FMNMX3 FMUL FMUL2 FMUL32I"
    " FSWZADD HADD2 HADD2_32I HFMA2 HFMA2_32I HMNMX2 HMUL2 HMUL2_32I VHMNMX FHADD FHFMA FADD3",
    "special functions": "MUFU",
    "conversion and packing": "F2F F2FP F2I F2IP FRND I2F I2FP I2I I2IP PRMT",
    "data movement": "B2R CS2R MOV MOV32I MOVM R2B S2R",
    "warp collectives": "CREDUX ELECT MATCH REDUX SHFL VOTE VOTEU",
    "constant loads": "LDC LDCU ULDC",
    "global memory": "LD LDG ST STG CCTL CCTLL CCTLT",
    "async copies": "LDGDEPBAR LDGSTS",
    "TMA": "UBLKCP UBLKPF UBLKRED UTMACCTL UTMACMDFLUSH UTMALDG UTMALST UTMAPF UTMAREDG UTMASTG",
    "shared memory": "LDS LDSM STAS STS STSM UMEMSETS",
    "local memory": "LDL STL",
    "atomics": "ATOM ATOMG ATOMS RED REDAS REDG REDS UREDGR UREDG UATOMG UATOMS",
    "legacy matrix": "BMMA DMMA HMMA IMMA OMMA QMMA",
    "WGMMA": "BGMMA HGMMA IGMMA QGMMA",
    "tcgen05": "LDT LDTM STT STTM UTCATOMSWS UTCBAR UTCBMMA UTCCP UTCHMMA UTCIMMA UTCLDSWS UTCMXQMMA UTCOMMA UTCQMMA"
    " UTCSHIFT UTCSTSWS",
    "synchronisation": "ACQBULK ACQSHMINIT ARRIVES BAR BARRIER CGAERRBAR DEPBAR ERRBAR FENCE MEMBAR NANOSLEEP PREEXIT SYNCS"
    " SYNCSU UCGABAR_ARV UCGABAR_WAIT UGETNEXTWORKID USETMAXREG USYNCS WARPGROUP WARPGROUPSET WARPSYNC",
    "control flow": "BMOV BPT BRA BREAK BRX BRXU BSSY BSYNC CALL COLLECTIVE ENDCOLLECTIVE EXIT JMP JMX JMXU KILL LEPC RET RPCMOV RTT"
    " ULEPC WARPSYNC_COLLECTIVE YIELD",
    "uniform": "CS2UR R2UR S2UR UBMSK UBREV UCLEA UCS2R UF2F UF2FP UF2I UF2IP UFADD UFFMA UFLO UFMNMX UFMUL UFRND UFSEL UFSET"
    " UFSETP UI2F UI2FP UI2I UI2IP UIABS UIADD3 UIADD UIMAD UIMNMX UISETP ULEA ULOP ULOP3 UMOV UMUFU UP2UR UPLOP3 UPOPC UPRMT"
    " UPSETP UR2UP USEL USETP USGXT USHF USHL USHR UVIADD UVIADDMNMX UVIMNMX UVIMNMX3 UVIRTCOUNT USETSHMSZ UIADD64 UIABSDIFF UGETNEXT",
    PADDING: "NOP",
}  # fmt: skip

FAMILIES: tuple[str, ...] = (*_OPCODES, OTHER)
"""All families, in the order in which tables list them."""

_FAMILY_OF = {opcode: family for family, opcodes in _OPCODES.items() for opcode in opcodes.split()}


def base_opcode(opcode: str) -> str:
    """The opcode without its modifiers: "LDG" of "LDG.E.128"."""
    return opcode.partition(".")[0]


def family_of(opcode: str, operands: str = "") -> str:
    """The family of an instruction, e.g. of "LDG.E.128"; with its operands, moves in other clothes are moves.

    A register is also moved, or set to a constant, by a multiply-add whose factors are zero: `IMAD.MOV.U32 R1, RZ, RZ, R2`
    or `HFMA2 R1, -RZ, RZ, 0, 1`, because that pipe is idle when the one for moves is busy.
    """
    base = base_opcode(opcode)
    if opcode.startswith("IMAD.MOV") or (base == "HFMA2" and re.match(r"\S+, ?-RZ, ?RZ,", operands)):
        return "data movement"
    return _FAMILY_OF.get(base, OTHER)


_MEMORY = {
    "LD",
    "LDG",
    "ST",
    "STG",
    "LDS",
    "STS",
    "LDL",
    "STL",
    "LDGSTS",
    "LDC",
    "LDCU",
    "ULDC",
    "ATOMG",
    "RED",
    "REDG",
}
_WIDTHS = {"U8": 8, "S8": 8, "U16": 16, "S16": 16, "16": 16, "32": 32, "64": 64, "96": 96, "128": 128, "256": 256}


def access_bits(opcode: str) -> int | None:
    """Bits that one thread reads or writes by a memory instruction: 128 of "LDG.E.128", 32 of "LDG.E"; None of others."""
    parts = opcode.split(".")
    if parts[0] not in _MEMORY:
        return None
    return next((_WIDTHS[part] for part in reversed(parts[1:]) if part in _WIDTHS), 32)
