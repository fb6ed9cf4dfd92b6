"""What a compiler's process does: one job, for which it finds out itself what a coming search will need."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from tilebench_core.backend import Backend
from tilebench_core.case import Case
from tilebench_core.config import RunConfig
from tilebench_core.device import Device, target_device
from tilebench_core.kernel import Config, Kernel
from tilebench_core.packs import KernelSource, Operator
from tilebench_core.precompile.unfilled import UnfilledDraw
from tilebench_core.registry import installed
from tilebench_core.tune.choose import code_of
from tilebench_core.tune.store import WinnerStore, candidates_of, known_winner, winner_key
from tilebench_core.worker.timed import with_wishes

__all__ = ["ComingSearch", "Compiled", "compile_job", "loaded"]


class Compiled(NamedTuple):
    """What one job compiled: how many configurations, and a line for each that failed."""

    configurations: int
    failures: tuple[str, ...]


class ComingSearch:
    """What a process must know of the coming searches of an operator to tell whether their winners are known."""

    def __init__(self, config: RunConfig, device: Device, operator: Operator) -> None:
        self.operator, self.device, self.tune = operator, device, config.tune
        self.settings = with_wishes(config.timing, operator.config.raw)

    def _code(self, backend: Backend, kernel: KernelSource) -> str:
        return code_of(backend, kernel, self.device, self.settings, self.tune.kind)

    def seems_known(self, backend: Backend, kernel: KernelSource, case: Case) -> bool:
        """Whether a winner of this code and case is kept. Its key holds the inputs as well, which only PyTorch can make."""
        code, place = self._code(backend, kernel), (case.dtype, dict(case.params))
        return any(winner.code == code and (winner.dtype, winner.params) == place for winner in WinnerStore().all())

    def configurations(self, backend: Backend, kernel: KernelSource, case: Case, inputs: Sequence[Any]) -> list[Config]:
        """The whole space of a case, or where a winner is known only that, with the default if another case shares it."""
        value = kernel.load()
        candidates = candidates_of(value.default(case), value.space(case))
        code = self._code(backend, kernel)
        key = winner_key(code, inputs, candidates)
        known = known_winner(
            WinnerStore().all(), key=key, code=code, operator=self.operator.config,
            case=case, candidates=candidates, share=self.tune.share, within=self.tune.share_within,
        )  # fmt: skip
        if known is None:
            return candidates
        return [known.config] if known.key == key else candidates_of(candidates[0], [known.config])


def loaded(name: str, options: Mapping[str, Any], module: str, operator: Operator) -> tuple[Backend, KernelSource]:
    """The backend of a job with its options, and the job's kernel."""
    registry = installed()
    value = registry.backend(name).value
    return value(value.Options(**options)), next(k for k in registry.kernels_for(operator, name) if k.module == module)


def compile_job(
    backend_name: str,
    options: Mapping[str, Any],
    module: str,
    folder: str,
    cases: Sequence[Case],
    search: ComingSearch | None,
    arch: str,
    slice_of: tuple[int, int] = (0, 1),
) -> Compiled:
    """Compile the default configuration of each case, or what its `search` will need; runs in a process of its own.

    Of a search's configurations, of which several may share their code, it takes every n-th, from the m-th on, as `slice_of`
    (m, n) says.
    """
    operator = installed().operators[folder]
    backend, source = loaded(backend_name, options, module, operator)
    kernel, definition = source.load(), operator.load()
    compiled = 0
    failures: list[str] = []
    for case in cases:
        if kernel.unsupported(case, target_device(arch)) is not None:
            continue
        inputs = definition.inputs(case, UnfilledDraw())
        wanted = [kernel.default(case)] if search is None else search.configurations(backend, source, case, inputs)
        wanted = _with_code_of_their_own(backend, kernel, inputs, wanted, arch)
        for config in wanted[slice_of[0] :: slice_of[1]]:
            try:
                backend.warm_cache(kernel, inputs, config, arch)
                compiled += 1
            except NotImplementedError:
                return Compiled(compiled, tuple(failures))
            except Exception as error:  # it is recorded where the kernel really runs; here it only means no head start
                text = (str(error).strip().splitlines() or [""])[0]
                failures.append(f"{backend_name} {operator.name} {case.dtype}: {type(error).__name__}: {text}")
    return Compiled(compiled, tuple(failures))


def _with_code_of_their_own(
    backend: Backend, kernel: Kernel, inputs: Sequence[Any], configs: Sequence[Config], arch: str
) -> list[Config]:
    """The configurations, of those that share their code the first one only."""
    if len(configs) < 2:
        return list(configs)
    known: set[Hashable] = set()
    kept = []
    for config in configs:
        try:
            key = backend.code_key(kernel, inputs, config, arch)
        except Exception:  # the compiler will say what is wrong with it
            key = None
        if key is None or key not in known:
            kept.append(config)
        if key is not None:
            known.add(key)
    return kept
