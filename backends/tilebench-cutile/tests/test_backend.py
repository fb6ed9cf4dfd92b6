import importlib.metadata
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tilebench_core import CompileError, Device, Kernel, LaunchError
from tilebench_core.device import CPU, target_device

from tilebench_cutile import backend as module
from tilebench_cutile.backend import CutileBackend, CutileOptions

HOPPER = target_device("sm_90")
offline = pytest.mark.skipif(sys.platform != "linux", reason="cuda-tile is a Linux package")


def compiled(kernel: object, *arguments: object, arch: str = "sm_90"):
    from .kernels import launch

    return CutileBackend().compile_for(Kernel(run=lambda: launch(kernel, *arguments)), (), {}, arch).launches[0]


def without(monkeypatch: pytest.MonkeyPatch, **versions: str) -> None:
    def version(name: str) -> str:
        if name not in versions:
            raise importlib.metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(module, "version", version)


def test_importing_the_backend_loads_neither_cutile_nor_pytorch():
    code = "import sys, tilebench_cutile.backend; print([m for m in ('torch', 'cuda.tile') if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_a_missing_package_is_a_reason_that_ends_in_its_command(monkeypatch):
    without(monkeypatch)
    assert CutileBackend().probe(HOPPER) == (
        "the package cuda-tile is not installed: pip install 'cuda-tile[tileiras]'"
    )
    assert CutileBackend().versions() == {}


def test_a_version_before_hopper_is_refused(monkeypatch):
    without(monkeypatch, **{"cuda-tile": "1.3.2"})
    assert "1.3.2 is too old" in CutileBackend().probe(HOPPER)


@pytest.mark.parametrize("found", ["1.4.0", "1.7.0", "1.10.1", "2.0.0rc1"])
def test_newer_versions_are_accepted(monkeypatch, found):
    without(monkeypatch, **{"cuda-tile": found})
    monkeypatch.setattr(module, "_has_tile_compiler", lambda: True)
    assert CutileBackend().probe(HOPPER) is None


def test_a_missing_tile_compiler_is_a_reason(monkeypatch):
    monkeypatch.setattr(module, "_has_tile_compiler", lambda: False)
    assert CutileBackend().probe(HOPPER).endswith("pip install 'cuda-tile[tileiras]'")


def test_a_cpu_and_an_old_gpu_are_refused_by_name():
    assert "needs an NVIDIA GPU" in CutileBackend().probe(CPU)
    old = Device(kind="cuda", name="T4", capability=(7, 5))
    assert "T4 has sm_75" in CutileBackend().probe(old)


def test_the_timeout_of_the_compiler_reaches_its_environment_variable():
    backend = CutileBackend(CutileOptions(compiler_timeout_s=7))
    assert backend.environment(HOPPER) == {"CUDA_TILE_COMPILER_TIMEOUT_SEC": "7"}
    with pytest.raises(ValueError, match="must be positive"):
        CutileOptions(compiler_timeout_s=0)


@offline
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100", "sm_120"])
def test_a_kernel_compiles_for_gpus_that_are_not_here(arch):
    from .kernels import KERNEL

    code = CutileBackend().compile_for(KERNEL, (torch.zeros(3008),), {"TILE": 1024}, arch).launches[0]
    assert code.name == "scale_kernel"
    assert code.resources.threads == 128
    assert code.resources.spill_bytes == 0
    assert 8 <= code.resources.registers <= 255
    assert "load_view_tko" in code.stages["tileir"]
    assert f".target {arch.rstrip('a')}" in code.stages["ptx"]
    assert "Global-memory load" in code.stages["remarks"]
    assert code.stages["cubin"].startswith(b"\x7fELF")


@offline
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.int64, torch.bool])
def test_every_dtype_passes_for_an_array_on_a_device(dtype):
    from .kernels import static_kernel

    x = torch.zeros(256, dtype=dtype)
    assert compiled(static_kernel, x, x, (1, 2)).name == "static_kernel"


@offline
def test_the_signature_carries_what_a_launch_would_specialise_on():
    from .kernels import scale_kernel

    aligned = compiled(scale_kernel, torch.zeros(3008), torch.zeros(3008), 1024).stages["tileir"]
    shifted = compiled(scale_kernel, torch.zeros(3009)[1:], torch.zeros(3007), 1024).stages["tileir"]
    assert re.findall(r"assume div_by<16>, (%arg\d)", aligned) == ["%arg0", "%arg1", "%arg3", "%arg4"]
    assert re.findall(r"assume div_by<16>, (%arg\d)", shifted) == ["%arg1", "%arg3"]  # x's extent and y's address


@offline
def test_spills_and_shared_memory_agree_with_cuobjdump(tmp_path):
    from .kernels import large_kernel

    a = torch.zeros(1024, 1024, dtype=torch.float16)
    code = compiled(large_kernel, a, a, a, 256)
    assert code.resources.spill_bytes > 0  # 128 × 256 fp32 sums do not fit into four warps
    assert code.resources.shared_bytes > 100_000
    tool = _cuobjdump()
    if tool is None:
        pytest.skip("no cuobjdump here: install triton, which brings it")
    (tmp_path / "code.cubin").write_bytes(code.stages["cubin"])
    report = subprocess.check_output([tool, "-res-usage", str(tmp_path / "code.cubin")], text=True)
    r = code.resources
    assert f"REG:{r.registers} STACK:{r.stack_bytes} SHARED:{r.shared_bytes}" in report


@offline
def test_a_compile_error_is_one_line_with_the_source_line():
    from .kernels import narrowing_kernel

    with pytest.raises(CompileError) as error:
        compiled(narrowing_kernel, torch.zeros(64), torch.zeros(64, dtype=torch.float16))
    message = str(error.value)
    assert "cannot implicitly cast float32 to float16" in message
    assert "kernels.py:" in message
    assert "ct.store(y, (0,), ct.load(x, (0,), (64,)))" in message
    assert "\n" not in message


@offline
def test_wrong_arguments_are_a_launch_error():
    from .kernels import scale_kernel

    with pytest.raises(LaunchError):
        compiled(scale_kernel, torch.zeros(64))


@offline
def test_nothing_stays_replaced_after_an_offline_compilation():
    import cuda.tile

    from .kernels import scale_kernel

    before = cuda.tile.launch, torch.cuda.current_stream
    compiled(scale_kernel, torch.zeros(64), torch.zeros(64), 64)
    assert (cuda.tile.launch, torch.cuda.current_stream) == before


@offline
def test_workers_fill_the_disk_cache_and_report_what_was_rejected(tmp_path, monkeypatch):
    from cutile_cache._cache import cache_entries

    from tilebench_cutile.workers import fill_side_by_side

    monkeypatch.setenv("CUDA_TILE_CACHE_DIR", str(tmp_path))
    configs = [{"TILE": 256}, {"TILE": 100}]
    failures = list(fill_side_by_side(f"{__package__}.kernels", (torch.zeros(3008),), configs, "sm_90", 2))
    assert failures[0] is None
    assert "not a power of two" in str(failures[1])
    assert len(list(cache_entries(str(tmp_path)))) == 1


def _cuobjdump() -> str | None:
    try:
        import triton
    except ImportError:
        return shutil.which("cuobjdump")
    return shutil.which("cuobjdump", path=str(Path(triton.__file__).parent / "backends" / "nvidia" / "bin"))


@offline
def test_the_code_of_a_launch_is_collected_once_for_each_signature():
    from cuda.tile import _compile

    from tilebench_cutile.absent import absent_gpu
    from tilebench_cutile.capture import compiled_launch, fill_cache, recorded_launches

    from .kernels import launch, scale_kernel

    def launched(size: int):
        x = torch.empty(size)
        with recorded_launches(launch_too=False) as launches:
            launch(scale_kernel, x, torch.empty_like(x), 64)
        return launches[0]

    compilations = []
    original = _compile.compile_tile

    def counted(*arguments):
        compilations.append(arguments)
        return original(*arguments)

    with absent_gpu(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(_compile, "compile_tile", counted)
        first = compiled_launch(launched(1024), "sm_90")
        assert compiled_launch(launched(2048), "sm_90") is first
        assert len(compilations) == 1
        assert compiled_launch(launched(1000), "sm_90") is not first  # 16 no longer divides the extent
        for size in (1024, 2048, 1000):
            fill_cache(launched(size), "sm_90")
        assert len(compilations) == 4
    assert first.resources.registers


@offline
def test_a_launch_that_compiles_is_not_compiled_again_for_its_code(monkeypatch):
    import cuda.tile
    from cuda.tile import _compile
    from cuda.tile._cext import default_tile_context

    from tilebench_cutile import capture
    from tilebench_cutile.absent import absent_gpu

    from .kernels import launch, scale_kernel

    def compiling_launch(_stream, grid, kernel, arguments):
        signature = capture._signature(capture.Launch(kernel, arguments, grid))
        kernel._compile(signature, default_tile_context, (9, 0))

    compilations = []
    original = _compile.compile_tile

    def counted(*arguments):
        compilations.append(arguments)
        return original(*arguments)

    monkeypatch.setattr(cuda.tile, "launch", compiling_launch)
    monkeypatch.setattr(_compile, "compile_tile", counted)
    monkeypatch.setattr(capture, "_KNOWN", {})
    x = torch.empty(1024)
    with absent_gpu():
        with capture.recorded_launches(launch_too=True) as launches:
            launch(scale_kernel, x, torch.empty_like(x), 64)
        code = capture.compiled_launch(launches[0], "sm_90")
        assert len(compilations) == 1
        assert code.stages["cubin"] == launches[0].cubin
        assert capture.compiled_launch(capture.Launch(scale_kernel, launches[0].arguments), "sm_90") is code
