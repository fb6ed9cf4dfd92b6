"""What every operator pack must keep. Subclass it in your pack's tests and name your distribution:

class TestMyPack(PackContract):
    distribution = "my-operators"
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import pytest

from tilebench_core.backend import Backend
from tilebench_core.definition import Draw
from tilebench_core.device import target_device
from tilebench_core.kernel import Config, Kernel
from tilebench_core.packs import KernelSource, Operator
from tilebench_core.precompile.unfilled import UnfilledDraw
from tilebench_core.registry import installed

__all__ = ["LARGEST_SPACE", "PackContract"]

LARGEST_SPACE = 64
"""Configurations that a space may hold: a search compiles and verifies every one, for each case that is searched."""


class PackContract:
    """Inherit and set `distribution`. Each test runs for every operator or kernel that the distribution provides."""

    distribution: str = ""
    importable_backends: tuple[str, ...] = ("torch",)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run a test per operator or per kernel of the distribution."""
        registry = installed()
        if "operator" in metafunc.fixturenames:
            operators = [o for o in registry.operators.values() if o.provider.name == self.distribution]
            metafunc.parametrize("operator", operators, ids=lambda operator: operator.folder)
        if "source" in metafunc.fixturenames:
            sources = [
                k
                for k in registry.kernels
                if k.provider.name == self.distribution and k.backend in self.importable_backends
            ]
            metafunc.parametrize("source", sources, ids=lambda source: f"{source.folder}-{source.backend}")

    def test_the_distribution_provides_something(self) -> None:
        registry = installed()
        provided: list[Operator | KernelSource] = [*registry.operators.values(), *registry.kernels]
        assert any(item.provider.name == self.distribution for item in provided), self.distribution

    def test_nothing_of_the_distribution_is_broken(self) -> None:
        assert [plugin for plugin in installed().broken if plugin.provider.name == self.distribution] == []

    def test_cases_have_work_and_distinct_shapes(self, operator: Operator) -> None:
        for dtype in operator.config.dtypes:
            cases = operator.config.cases(dtype)
            assert len({case.label for case in cases}) == len(cases)
            for case in [*cases, *operator.config.cases(dtype, "edge"), *operator.config.cases(dtype, "smoke")]:
                assert operator.config.flops(case) >= 0
                assert operator.config.bytes(case) > 0
                assert operator.config.tolerance(case, dtype) is not None

    def test_drawing_again_gives_equal_shapes_and_new_values(self, operator: Operator) -> None:
        import torch

        definition = operator.load()
        for dtype in operator.config.dtypes:
            case = operator.config.cases(dtype, "smoke")[0]
            first, second, again = (definition.inputs(case, Draw("cpu", seed)) for seed in (1, 2, 1))
            changed = False
            for a, b, c in zip(first, second, again, strict=True):
                if isinstance(a, torch.Tensor):
                    assert (a.shape, a.dtype, a.stride()) == (b.shape, b.dtype, b.stride())
                    assert torch.equal(a.float(), c.float()), "the same seed must draw the same values"
                    changed |= not torch.equal(a.float(), b.float())
                else:
                    assert a == b, "plain values must not depend on the seed"
            assert changed, "another seed must draw other values"

    def test_a_kernel_keeps_the_contract(self, source: KernelSource) -> None:
        kernel = source.load()
        operator = installed().operators[source.folder]
        backend = installed().backend(source.backend).value()
        parameters = inspect.signature(kernel.run).parameters.values()
        names = {p.name for p in parameters if p.kind is p.KEYWORD_ONLY}
        hands_on = any(p.kind is p.VAR_KEYWORD for p in parameters)
        for dtype in operator.config.dtypes:
            for case in [*operator.config.cases(dtype), *operator.config.cases(dtype, "edge")]:
                if kernel.unsupported(case, target_device("sm_90")) is not None:
                    continue
                space = kernel.space(case)
                inputs = operator.load().inputs(case, UnfilledDraw()) if hands_on else ()
                for config in [kernel.default(case), *space]:
                    _check_values(config)
                    if hands_on:
                        _check_call(backend, kernel, inputs, config)
                    else:
                        assert set(config) <= names, f"{config} names options that run does not take: {names}"
                assert len(space) <= LARGEST_SPACE


def _check_values(config: Config) -> None:
    for value in config.values():
        plain = value is None or isinstance(value, (bool, int, float, str))  # None leaves the choice to the compiler
        assert plain, f"{value!r} is no plain JSON value"


def _check_call(backend: Backend, kernel: Kernel, inputs: Sequence[Any], config: Config) -> None:
    """Of a `run` that hands `**config` on only a call tells whether its options are taken: one that builds and launches nothing."""
    key = backend.code_key(kernel, inputs, config, "sm_90")
    assert key is not None, f"run takes **config, which {backend.name} cannot try without a compiler: name the options"
