"""Inspecting generated code: SASS read and classified, binaries read, requests checked, tables that say what is in them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tilebench_core.cli import main
from tilebench_core.diagnosis import tools
from tilebench_core.diagnosis.code import kernel_codes
from tilebench_core.diagnosis.cubin import kernel_uses
from tilebench_core.diagnosis.families import FAMILIES, OTHER, access_bits, family_of
from tilebench_core.diagnosis.inspection import Target, inspect_target
from tilebench_core.diagnosis.request import parse_request
from tilebench_core.diagnosis.sass import parse_sass
from tilebench_core.diagnosis.show import code_text, markdown_inspections, write_code
from tilebench_core.diagnosis.tools import ToolMissing
from tilebench_core.errors import RequestError, TilebenchError
from tilebench_core.registry import installed

CORPUS = Path(__file__).parent / "sass_opcodes.json"

# What nvdisasm prints, shortened: a loop that is never reached and padding stand behind the code.
NVDISASM = """
	.section	.text.add_kernel,"ax",@progbits
add_kernel:
.text.add_kernel:
	//## File "/pack/impl.py", line 16
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/              @!P0 LDG.E.128 R4, desc[UR4][R2.64] ;
	//## File "/pack/impl.py", line 18
        /*0020*/                   HFMA2.MMA R13, -RZ, RZ, 0, 1  ;
        /*0030*/              @UP1 UIADD3 UR4, UR4, 0x1, URZ ;
.L_x_1:
        /*0040*/                   EXIT ;
.L_x_0:
        /*0050*/                   BRA `(.L_x_0);
        /*0060*/                   NOP;
        /*0070*/                   NOP;
"""

CUOBJDUMP = """
	code for sm_90
		Function : add_kernel
	.headerflags	@"EF_CUDA_SM90"
        /*0000*/                   LDC R1, c[0x0][0x28] ;                 /* 0x00000a00ff017b82 */
                                                                          /* 0x000ff00000000800 */
        /*0010*/              @!P0 LDG.E.128 R4, desc[UR4][R2.64] ;       /* 0x0000000402047981 */
"""


def test_a_listing_is_read_with_predicates_and_source_lines_and_without_its_tail():
    (listing,) = parse_sass(NVDISASM)
    assert (listing.name, listing.code_bytes) == ("add_kernel", 0x50)
    assert [i.opcode for i in listing.instructions] == ["LDC", "LDG.E.128", "HFMA2.MMA", "UIADD3", "EXIT"]
    load = listing.instructions[1]
    assert (load.address, load.predicate, load.source) == (0x10, "@!P0", ("/pack/impl.py", 16))
    assert load.text == "@!P0 LDG.E.128 R4, desc[UR4][R2.64]"
    assert listing.instructions[2].source == ("/pack/impl.py", 18)
    assert [i.address for i in listing.around(0x10, 1)] == [0, 0x10, 0x20]
    assert "    // impl.py:18\n00020  HFMA2.MMA" in code_text(listing.instructions)


def test_the_other_disassemblers_listing_is_read_alike():
    (listing,) = parse_sass(CUOBJDUMP)
    assert [i.text for i in listing.instructions] == ["LDC R1, c[0x0][0x28]", "@!P0 LDG.E.128 R4, desc[UR4][R2.64]"]


@pytest.mark.parametrize(
    ("opcode", "operands", "family"),
    [("IMAD.WIDE.U32", "R2, R3, R4, RZ", "integer and address"), ("IMAD.MOV.U32", "R1, RZ, RZ, R2", "data movement"),
     ("HFMA2", "R13, -RZ, RZ, 0, 1", "data movement"), ("HFMA2", "R13, R2, R3, R4", "floating point"),
     ("ISETP.GE.AND", "", "predicate and select"), ("MUFU.EX2", "", "special functions"),
     ("F2FP.F16.F32.PACK_AB", "", "conversion and packing"), ("SHFL.BFLY", "", "warp collectives"),
     ("LDCU.64", "", "constant loads"), ("STG.E.128", "", "global memory"), ("LDGSTS.E.BYPASS.128", "", "async copies"),
     ("UTMALDG.2D", "", "TMA"), ("LDSM.16.M88.4", "", "shared memory"), ("LDL", "", "local memory"),
     ("ATOMG.E.ADD", "", "atomics"), ("HMMA.16816.F32", "", "legacy matrix"), ("HGMMA.64x256x16.F32", "", "WGMMA"),
     ("UTCHMMA", "", "tcgen05"), ("SYNCS.PHASECHK.TRANS64", "", "synchronisation"), ("BSSY", "", "control flow"),
     ("UIADD3.X", "", "uniform"), ("NOP", "", "padding"), ("QUUX.Z", "", OTHER)],
)  # fmt: skip
def test_an_instruction_has_its_family(opcode, operands, family):
    assert family_of(opcode, operands) == family


@pytest.mark.parametrize(
    ("opcode", "bits"),
    [("LDG.E", 32), ("LDG.E.128", 128), ("STG.E.U8", 8), ("LDS.U.64", 64), ("LDG.E.128.CONSTANT", 128),
     ("LDG.E.U16.CONSTANT", 16), ("STG.E.ENL2.256", 256), ("LDSM.16.M88.4", None), ("FADD", None)],
)  # fmt: skip
def test_a_memory_access_has_its_width(opcode, bits):
    assert access_bits(opcode) == bits


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_at_least_99_per_cent_of_our_own_kernels_instructions_have_a_named_family(arch):
    kernels = json.loads(CORPUS.read_text())[arch]
    assert len(kernels) >= 20
    counts: Counter[str] = Counter()
    for opcodes in kernels.values():
        for opcode, number in opcodes.items():
            counts[family_of(opcode)] += number
    assert counts.total() > 10_000
    assert counts[OTHER] <= 0.01 * counts.total()


def test_the_corpus_holds_what_makes_the_architectures_different():
    corpus = json.loads(CORPUS.read_text())
    found = {arch: {family_of(op) for k in kernels.values() for op in k} for arch, kernels in corpus.items()}
    assert {"async copies", "legacy matrix"} <= found["sm_80"]
    assert {"TMA", "WGMMA"} <= found["sm_90"]
    assert {"TMA", "tcgen05"} <= found["sm_100"]
    assert not found["sm_80"] & {"TMA", "WGMMA", "tcgen05"}


# ---- requests


def test_a_request_reads_lists_configurations_and_options():
    request = parse_request(
        ["operator=[a,b]", "config.BLOCK=[64,128]", "config.num_warps=4", "case.n=7", "backends.x.assemble=false"],
        ["operator"],
    )
    assert request.many("operator", []) == ["a", "b"]
    assert request.configs == [{"BLOCK": 64, "num_warps": 4}, {"BLOCK": 128, "num_warps": 4}]
    assert (request.params, request.backends) == ({"n": 7}, {"x": {"assemble": False}})


@pytest.mark.parametrize(
    ("argument", "says"),
    [("operatr=a", "Did you mean 'operator'"), ("operator", "expected key=value"), ("operator=[a", "lists are written"),
     ("backends.x=1", "unknown key")],
)  # fmt: skip
def test_a_malformed_request_is_told_in_one_line(argument, says):
    with pytest.raises(RequestError, match=says):
        parse_request([argument], ["operator"])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [(["backend=triton"], "needs operator="), (["operator=softmx"], "Did you mean 'softmax'"),
     (["operator=softmax", "dtype=int4"], "not int4"), (["operator=softmax", "case=99"], "an index from 0 to 19"),
     (["operator=softmax", "case.columns=3"], "case.columns: softmax has rows, cols")],
)  # fmt: skip
def test_a_wrong_wish_of_inspect_is_a_wrong_request(arguments, says, capsys):
    assert main(["inspect", *arguments]) == 2
    assert says in capsys.readouterr().err


def test_help_of_the_diagnosis_commands_loads_nothing_heavy():
    code = (
        "import sys\nfrom tilebench_core.cli import main\n"
        "for command in ('inspect', 'profile', 'diagnose'):\n"
        "    try: main([command, '--help'])\n    except SystemExit: pass\n"
        "print(sorted(set(sys.modules) & {'torch', 'mlflow', 'triton', 'tilelang', 'pandas', 'hydra', 'matplotlib'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]"


# ---- tools


def test_without_a_disassembler_the_message_says_what_to_type(monkeypatch):
    monkeypatch.setattr(tools, "packaged", lambda distribution, program: None)
    monkeypatch.setattr(tools.shutil, "which", lambda program: None)
    with pytest.raises(ToolMissing, match=r"pip install 'tilebench\[diagnosis\]'"):
        tools.disassembler()


def test_a_file_that_is_no_binary_is_refused(monkeypatch):
    pytest.importorskip("triton")
    if tools.packaged("nvidia-cuda-nvdisasm", "nvdisasm") is None:
        pytest.skip("nvidia-cuda-nvdisasm is not installed")
    with pytest.raises(TilebenchError, match="cannot read the binary"):
        tools.disassemble(b"no cubin")
    with pytest.raises(ValueError, match="not a 64-bit"):
        kernel_uses(b"no cubin")


# ---- live: our own kernels through their compilers and the disassembler

SAMPLE = [
    "vector_add", "relu", "mul2", "sigmoid", "swiglu", "dropout", "fused_activation", "matrix_copy", "reverse_array",
    "matrix_transpose", "softmax", "rmsnorm", "argmax", "rope", "matmul_fp32_fp16_fp8",
]  # fmt: skip


@pytest.fixture(scope="module")
def disassembler():
    try:
        return tools.disassembler()
    except ToolMissing as error:
        pytest.skip(str(error))


def inspected(operator: str, backend: str, arch: str):
    registry = installed()
    found = registry.operator(operator)
    case = found.config.cases(found.config.dtypes[0], "smoke")[0]
    return inspect_target(registry, Target(operator=operator, backend=backend, case=case, arch=arch))


@pytest.mark.parametrize("backend", ["triton", "cutile"])
@pytest.mark.parametrize("number", range(len(SAMPLE)))
def test_our_kernels_compile_disassemble_and_classify(disassembler, backend, number):
    pytest.importorskip({"triton": "triton", "cutile": "cuda.tile"}[backend])
    arch = ("sm_90", "sm_100")[number % 2]
    inspection = inspected(SAMPLE[number], backend, arch)
    assert inspection.reason is None
    for kernel in inspection.kernels:
        assert kernel.registers > 0
        assert kernel.instructions >= 8
        assert sum(kernel.unnamed.values()) <= 0.01 * kernel.instructions
        assert set(kernel.families) <= set(FAMILIES)
        assert any(i.source and i.source[0].endswith(f"impl_{backend}.py") for i in kernel.listing.instructions)
        assert "ptx" in kernel.texts


def test_side_by_side_on_the_terminal_and_as_json(disassembler, capsys):
    pytest.importorskip("triton")
    request = ["inspect", "operator=vector_add", "backend=triton", "case=smoke", "config.num_warps=[4,8]", "arch=sm_90"]
    assert main(request) == 0
    printed = capsys.readouterr().out
    assert "triton num_warps=4" in printed
    assert "static counts" in printed
    assert main([*request, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [row["config"]["num_warps"] for row in document] == [4, 8]
    assert [row["kernels"][0]["threads"] for row in document] == [128, 256]
    assert document[0]["kernels"][0]["counts"] == "static"


def test_of_several_backends_each_takes_the_keys_it_has_and_a_key_of_nobody_is_refused(disassembler, capsys):
    pytest.importorskip("triton")
    pytest.importorskip("cuda.tile")
    request = ["inspect", "operator=vector_add", "backend=[triton,cutile]", "case=smoke"]
    assert main([*request, "config.num_warps=8", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [row["config"].get("num_warps") for row in document] == [8, None]
    assert main([*request, "config.num_wraps=8"]) == 2
    assert "Did you mean 'num_warps'" in capsys.readouterr().err


def test_stages_are_printed_and_written_with_source_lines(disassembler, capsys, tmp_path):
    pytest.importorskip("triton")
    request = ["inspect", "operator=vector_add", "backend=triton", "case=smoke", "arch=sm_90"]
    assert main([*request, "stage=[sass,ptx]", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "// impl_triton.py:" in printed
    assert ".visible .entry" in printed
    folder = tmp_path / "vector_add" / installed().operator("vector_add").config.dtypes[0]
    assert sorted(path.name.rpartition(".")[2] for path in folder.iterdir()) == ["llir", "ptx", "sass", "ttgir", "ttir"]


def test_what_a_kernel_or_its_compiler_refuses_is_a_reason(disassembler):
    pytest.importorskip("triton")
    registry = installed()
    case = registry.operator("vector_add").config.cases("fp16", "smoke")[0]
    target = Target(operator="vector_add", backend="triton", case=case, arch="sm_90")
    refused = inspect_target(registry, target, {"BLOCK": 3})
    assert refused.kernels == ()
    assert refused.reason.startswith("CompileError")
    with pytest.raises(RequestError, match=r"config\.BLOK: .* Did you mean 'BLOCK'"):
        inspect_target(registry, target, {"BLOK": 64})
    assert "CompileError" in markdown_inspections([refused])
    assert write_code([refused], Path("unused")) == []


def test_a_launch_without_a_binary_is_an_error():
    from tilebench_core import LaunchCode

    with pytest.raises(TilebenchError, match="gave no binary, only cuda"):
        kernel_codes([LaunchCode(name="k", stages={"cuda": "source"})])
