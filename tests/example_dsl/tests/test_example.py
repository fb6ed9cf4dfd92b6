"""The example proves itself with the tests that every backend and pack inherits."""

import pytest
from tilebench_example.backend import ExampleBackend

from tilebench_core.testing.backend_contract import BackendContract
from tilebench_core.testing.pack_contract import PackContract


class TestExampleBackend(BackendContract):
    dsl_modules = ("torch", "numpy", "tilebench_example.tiles")

    @pytest.fixture
    def backend(self):
        return ExampleBackend()


class TestExamplePack(PackContract):
    distribution = "tilebench-example"
    importable_backends = ("example",)


def test_a_constant_that_is_no_power_of_two_does_not_compile():
    import torch
    from tilebench_example_kernels.softmax.impl_example import KERNEL

    from tilebench_core import CompileError

    with pytest.raises(CompileError, match="softmax_rows: ROWS=3 is no power of two"):
        ExampleBackend().compile(KERNEL, (torch.zeros(4, 4),), {"ROWS": 3})
