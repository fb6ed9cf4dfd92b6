"""What every backend must keep. Subclass it in your backend's tests and fill in the fixtures:

class TestMyBackend(BackendContract):
    @pytest.fixture
    def backend(self): return MyBackend()
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys

import pytest

from tilebench_core.backend import PLUGIN_API, Backend
from tilebench_core.device import CPU, target_device
from tilebench_core.errors import BackendError
from tilebench_core.kernel import Kernel
from tilebench_core.plugins import check_backend
from tilebench_core.registry import installed

__all__ = ["BackendContract"]


class BackendContract:
    """Inherit and define the fixture `backend`. `dsl_modules` names what must not be imported by importing the backend."""

    dsl_modules: tuple[str, ...] = ("torch",)

    @pytest.fixture
    def backend(self) -> Backend:
        """The backend under test."""
        raise NotImplementedError("define a fixture `backend` that returns an instance of your backend")

    def test_the_backend_is_a_usable_plugin(self, backend: Backend) -> None:
        assert check_backend(type(backend)) is None
        assert type(backend).api == PLUGIN_API

    def test_the_backend_is_installed_under_its_own_name(self, backend: Backend) -> None:
        assert installed().backends[backend.name].value is type(backend)

    def test_importing_the_backend_costs_nothing(self, backend: Backend) -> None:
        code = f"import sys, json, {type(backend).__module__}; print(json.dumps(list(sys.modules)))"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
        assert not set(self.dsl_modules) & set(json.loads(done.stdout))

    def test_the_options_are_a_dataclass_of_plain_values(self, backend: Backend) -> None:
        assert dataclasses.is_dataclass(type(backend).Options)
        assert json.loads(json.dumps(dataclasses.asdict(type(backend).Options()))) is not None

    def test_the_versions_are_text(self, backend: Backend) -> None:
        versions = backend.versions()
        assert versions
        assert all(isinstance(name, str) and isinstance(value, str) for name, value in versions.items())

    def test_a_probe_answers_with_a_reason_or_none(self, backend: Backend) -> None:
        for device in (CPU, target_device("sm_70"), target_device("sm_90")):
            reason = backend.probe(device)
            assert reason is None or len(reason) > 10

    def test_a_failing_kernel_raises_one_of_our_errors(self, backend: Backend) -> None:
        def run(*inputs: object, **config: object) -> None:
            raise RuntimeError("a kernel that cannot work")

        if backend.probe(CPU) is not None:
            with pytest.raises((BackendError, NotImplementedError)):
                backend.compile_for(Kernel(run=run), (), {}, "sm_90")
        else:
            with pytest.raises(BackendError, match="cannot work"):
                backend.compile(Kernel(run=run), (), {})
