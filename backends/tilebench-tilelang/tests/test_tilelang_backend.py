import json
import os
import struct
import subprocess
import sys

import pytest
from tilebench_core import Device, Kernel
from tilebench_core.device import CPU
from tilebench_core.errors import CompileError, LaunchError

from tilebench_tilelang import backend as backend_module
from tilebench_tilelang import toolchain
from tilebench_tilelang.backend import TilelangBackend, TilelangOptions
from tilebench_tilelang.capture import exact_arch
from tilebench_tilelang.cubin import embedded_cubin
from tilebench_tilelang.errors import one_line

HOPPER = Device(kind="cuda", name="H", capability=(9, 0), multiprocessors=132)


def test_importing_the_backend_imports_no_tilelang_and_no_torch():
    code = "import sys, tilebench_tilelang.backend as b; b.TilelangBackend().versions(); "
    code += "assert not {'torch', 'tilelang', 'tvm'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_missing_package_is_a_reason_that_ends_in_the_command(monkeypatch):
    monkeypatch.setattr(backend_module, "find_spec", lambda name: None)
    assert TilelangBackend().probe(HOPPER).endswith("pip install tilebench-tilelang")


def test_a_cpu_an_old_gpu_and_a_missing_compiler_are_reasons(monkeypatch):
    monkeypatch.setattr(backend_module, "find_spec", lambda name: object())
    monkeypatch.setattr(toolchain, "nvcc", lambda: "/nvcc")
    monkeypatch.setattr(toolchain, "cplus_compiler", lambda: "/g++")
    assert TilelangBackend().probe(HOPPER) is None
    assert "CUDA GPU" in TilelangBackend().probe(CPU)
    assert "sm_75" in TilelangBackend().probe(Device(kind="cuda", name="T4", capability=(7, 5)))
    monkeypatch.setattr(toolchain, "cplus_compiler", lambda: None)
    assert "g++" in TilelangBackend().probe(HOPPER)
    monkeypatch.setattr(toolchain, "nvcc", lambda: None)
    assert "nvcc" in TilelangBackend().probe(HOPPER)


def test_nvcc_is_looked_for_in_cuda_home_first(monkeypatch, tmp_path):
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert toolchain.nvcc() is None
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "nvcc").touch()
    assert toolchain.nvcc() == str(tmp_path / "bin" / "nvcc")


def test_the_environment_names_the_target_and_the_cache():
    variables = TilelangBackend(TilelangOptions(cache_dir="/cache")).environment(HOPPER)
    assert json.loads(variables["TILELANG_DEFAULT_TARGET"]) == {"kind": "cuda", "arch": "sm_90a"}
    assert variables["TILELANG_CACHE_DIR"] == "/cache"
    assert "TILELANG_DEFAULT_TARGET" not in TilelangBackend().environment(CPU)


@pytest.mark.parametrize(("arch", "exact"), [("sm_80", "sm_80"), ("sm_90", "sm_90a"), ("sm_100", "sm_100a")])
def test_architectures_get_their_own_instructions(arch, exact):
    assert exact_arch(arch) == exact


def test_an_error_of_nvcc_becomes_the_line_that_names_it():
    text = (
        "__global__ void error() {}\nCompilation error:\nk.cu(3): error: no such thing\n1 error detected\nCommand: nvcc"
    )
    assert one_line(RuntimeError(text)) == "nvcc: k.cu(3): error: no such thing"


def test_a_cubin_is_found_behind_the_header_of_its_library():
    header = b"\x7fELF" + bytes(14)
    library = header + struct.pack("<H", 62) + b"code" + header + struct.pack("<H", 190) + b"device"
    assert embedded_cubin(library).endswith(b"device")
    assert embedded_cubin(header + struct.pack("<H", 62)) is None


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_a_kernel_compiles_for_a_gpu_that_is_not_there(arch):
    pytest.importorskip("tilelang")
    import torch
    from tilebench_operators.vector_add.impl_tilelang import KERNEL

    x = torch.zeros(3000, dtype=torch.float16)
    compilation = TilelangBackend().compile_for(KERNEL, [x, x], {"BLOCK": 1024, "threads": 128}, arch)
    (launch,) = compilation.launches
    assert (launch.name, launch.resources.threads) == ("add_kernel", 128)
    assert "*(uint4*)(x" in launch.stages["cuda"]  # whole blocks load 16 bytes at a time


def test_what_was_built_for_one_target_is_not_taken_for_another():
    pytest.importorskip("tilelang")
    import torch
    from tilebench_operators.flash_attention.impl_tilelang import KERNEL

    q = torch.zeros(1, 2, 160, 128, dtype=torch.float16)
    sources = [
        TilelangBackend().compile_for(KERNEL, [q, q, q], {"BM": 128, "stages": 2}, arch).launches[0].stages["cuda"]
        for arch in ("sm_90", "sm_100", "sm_90")
    ]
    assert ["wgmma" in source for source in sources] == [True, False, True]


def test_compiling_ahead_tells_kernels_the_target(tmp_path):
    """In a process of its own: TileLang reads its environment once. No GPU is seen, as in the processes that compile ahead."""
    pytest.importorskip("tilelang")
    program = """
import torch
from tilebench_tilelang.backend import TilelangBackend
from tilebench_core import Kernel
asked = []
def run(x):
    from tilebench_operators._tilelang_wgmma import has_wgmma
    asked.append(has_wgmma())
for arch in ("sm_80", "sm_90"):
    TilelangBackend().warm_cache(Kernel(run=run), [torch.zeros(8)], {}, arch)
print(asked)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "TILELANG_CACHE_DIR": str(tmp_path)},
    )  # fmt: skip
    assert done.stdout == "[False, True]\n", done.stderr


def test_configurations_that_differ_in_the_launch_alone_share_their_code():
    pytest.importorskip("tilelang")
    import torch
    from tilebench_operators.histogramming.impl_tilelang import KERNEL as HISTOGRAM

    config = {"COPIES": 8, "LOADS": 2, "PER_SM": 1, "threads": 256}

    def key(**changes):
        inputs = [torch.zeros(4096, dtype=torch.int32), 4096, 64]
        return TilelangBackend().code_key(HISTOGRAM, inputs, {**config, **changes}, "sm_90")

    assert key() == key(PER_SM=2)
    assert len({key(), key(LOADS=4), key(threads=512)}) == 3


def test_failures_of_the_compiler_and_of_run_are_told_apart():
    pytest.importorskip("tilelang")
    import torch
    from tilebench_operators.vector_add.impl_tilelang import KERNEL

    x = torch.zeros(8)
    with pytest.raises(CompileError, match="threads must be positive"):
        TilelangBackend().compile_for(KERNEL, [x, x], {"BLOCK": 1024, "threads": -1}, "sm_90")

    def run(x):
        raise IndexError("out of range")

    with pytest.raises(LaunchError, match="IndexError: out of range"):
        TilelangBackend().compile_for(Kernel(run=run), [x], {}, "sm_90")


def test_the_matrix_product_uses_the_tensor_cores_of_hopper():
    pytest.importorskip("tilelang")
    import torch
    from tilebench_operators.matmul_fp32_fp16_fp8.impl_tilelang import KERNEL

    a = torch.zeros(64, 64, dtype=torch.float16)
    config = {"BM": 128, "BN": 128, "BK": 64, "GROUP": 8, "TRANSPOSE_B": False, "stages": 4, "threads": 256}
    (launch,) = TilelangBackend().compile_for(KERNEL, [a, a], config, "sm_90").launches
    assert "wgmma_ss" in launch.stages["cuda"]
    assert "tma_load" in launch.stages["cuda"]
    assert launch.resources.shared_bytes == 4 * (128 * 64 + 64 * 128) * 2  # the output's tile shares the stages' memory
