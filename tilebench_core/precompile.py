"""Compiling ahead: the planned kernels are compiled side by side, into the DSLs' own disk caches, before the first runs.

Compilers take seconds and one core each, so a campaign that compiled as it went would leave both the GPU and most cores
idle. What is compiled here is what the worker asks its cache for later; a kernel that fails here fails there too, and is
recorded there.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tilebench_core.backend import Backend
from tilebench_core.case import Case
from tilebench_core.config import RunConfig, TuneSettings
from tilebench_core.definition import Draw
from tilebench_core.device import Device, target_device
from tilebench_core.kernel import Config
from tilebench_core.packs import KernelSource, Operator
from tilebench_core.plan import CaseTask
from tilebench_core.registry import installed
from tilebench_core.tune.choose import code_of
from tilebench_core.tune.sharing import reach, searched
from tilebench_core.tune.store import WinnerStore, candidates_of, known_winner, winner_key
from tilebench_core.worker.timed import with_wishes

if TYPE_CHECKING:
    import torch

__all__ = ["Precompiler", "UnfilledDraw"]

_STARTED_WITH = dict(os.environ)
"""In the process that compilers are forked from: its environment before it imported a DSL, which may add to it."""


class UnfilledDraw(Draw):
    """Draws tensors of the right shape and dtype whose memory is never touched: a compiler looks at no values."""

    def __init__(self) -> None:
        super().__init__("cpu", 0)

    def _empty(self, shape: Sequence[int], dtype: Any) -> torch.Tensor:
        empty: torch.Tensor = self._torch.empty(shape, dtype=self._dtype(dtype))
        return empty

    def normal(self, *shape: int, dtype: Any) -> torch.Tensor:
        """See `Draw.normal`."""
        return self._empty(shape, dtype)

    def uniform(self, *shape: int, dtype: Any, low: float = 0.0, high: float = 1.0) -> torch.Tensor:
        """See `Draw.uniform`."""
        return self._empty(shape, dtype)

    def integers(self, *shape: int, dtype: Any, low: int, high: int) -> torch.Tensor:
        """See `Draw.integers`."""
        return self._empty(shape, dtype)

    def permutation(self, n: int, *, dtype: Any = "int64") -> torch.Tensor:
        """See `Draw.permutation`."""
        return self._empty((n,), dtype)


class Compiled(NamedTuple):
    """What one job compiled: how many configurations, and a line for each that failed."""

    configurations: int
    failures: tuple[str, ...]


class _Job(NamedTuple):
    """Default configurations of `cases`, or for tuned trials the whole space of one case, which `waiting` needs as well."""

    backend: str
    module: str
    folder: str
    cases: list[Case]
    tuned: bool
    waiting: list[Case]


def _jobs(tasks: Sequence[CaseTask], tune: TuneSettings) -> list[_Job]:
    """A job for every kernel and dtype that is going to run, and one for every case that is going to be searched.

    Where winners are shared, every case of the kernel waits for those that are searched. The whole space is compiled for our
    own search only: a DSL's own tuner compiles for itself, and its seconds count that.
    """
    grouped: dict[tuple[str, str, str, bool, str], list[CaseTask]] = {}
    for task in tasks:
        for trial in task.trials:
            tuned = trial.mode == "tuned"
            if trial.verdict is None and trial.module is not None and not (tuned and tune.kind != "shared"):
                within = reach(tune.share, task.case.dtype) if tuned else task.case.dtype
                grouped.setdefault((trial.backend, trial.module, task.operator.folder, tuned, within), []).append(task)
    jobs = []
    for (backend, module, folder, tuned, _), together in grouped.items():
        operator, cases = together[0].operator, [task.case for task in together]
        if not tuned:
            jobs.append(_Job(backend, module, folder, cases, False, []))
            continue
        alone = tune.share == "case"
        for case in cases if alone else searched(cases, operator.config.bytes, tune.share_within):
            jobs.append(_Job(backend, module, folder, [case], True, [] if alone else cases))
    return jobs


def _worthwhile(jobs: list[_Job], is_known: Callable[[_Job], bool]) -> list[_Job]:
    """The jobs, or none for a single kernel: the worker has compiled it before a compiler has started.

    A search whose winner is known compiles a single one too.
    """
    if len(jobs) != 1 or len(jobs[0].cases) != 1 or len(jobs[0].waiting) > 1:
        return jobs
    return [] if not jobs[0].tuned or is_known(jobs[0]) else jobs


def _loaded(name: str, options: Mapping[str, Any], module: str, operator: Operator) -> tuple[Backend, KernelSource]:
    """The backend of a job with its options, and the job's kernel."""
    registry = installed()
    value = registry.backend(name).value
    return value(value.Options(**options)), next(k for k in registry.kernels_for(operator, name) if k.module == module)


def _compile_job(
    backend_name: str,
    options: Mapping[str, Any],
    module: str,
    folder: str,
    cases: Sequence[Case],
    search: _Search | None,
    arch: str,
    slice_of: tuple[int, int] = (0, 1),
) -> Compiled:
    """Compile the default configuration of each case, or what its `search` will need; runs in a process of its own.

    Of a search's configurations it takes every n-th, from the m-th on, as `slice_of` (m, n) says.
    """
    operator = installed().operators[folder]
    backend, source = _loaded(backend_name, options, module, operator)
    kernel, definition = source.load(), operator.load()
    compiled = 0
    failures: list[str] = []
    for case in cases:
        if kernel.unsupported(case, target_device(arch)) is not None:
            continue
        inputs = definition.inputs(case, UnfilledDraw())
        wanted = [kernel.default(case)] if search is None else search.configurations(backend, source, case, inputs)
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


def _slices(jobs: Sequence[_Job], cores: int) -> int:
    """In how many parts each searched space is compiled, so that one case alone keeps the cores busy too."""
    return max(1, cores // max(1, sum(job.tuned for job in jobs)))


class _Search:
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
        """The whole space of a case, or only the winner where one is known: then nothing is searched."""
        value = kernel.load()
        candidates = candidates_of(value.default(case), value.space(case))
        code = self._code(backend, kernel)
        known = known_winner(
            WinnerStore().all(), key=winner_key(code, inputs, candidates), code=code, operator=self.operator.config,
            case=case, candidates=candidates, share=self.tune.share, within=self.tune.share_within,
        )  # fmt: skip
        return candidates if known is None else [known.config]


def _quiet(log: str, environment: Mapping[str, str]) -> None:
    """Send what a compiler prints to the campaign's log, and hide the GPU: compilers must not make contexts on it."""
    imported = {name: value for name, value in os.environ.items() if _STARTED_WITH.get(name) != value}
    os.environ.clear()  # it is the server's, which may have been started under another
    os.environ.update({**environment, **imported})
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(output, 1)
    os.dup2(output, 2)
    import torch

    torch.set_num_threads(1)


class Precompiler:
    """Compiles what tasks will need on all cores but one, while the worker already runs those that are ready.

    Best effort: nothing depends on it but time. `close` ends whatever still compiles.
    """

    def __init__(
        self,
        tasks: Sequence[CaseTask],
        config: RunConfig,
        device: Device,
        environment: Mapping[str, str],
        log: Path,
        say: Callable[[str], None],
    ) -> None:
        self._say, self._started = say, time.monotonic()
        operators = {task.operator.folder: task.operator for task in tasks}

        def is_known(job: _Job) -> bool:
            backend, kernel = _loaded(
                job.backend, config.backends[job.backend] or {}, job.module, operators[job.folder]
            )
            return _Search(config, device, operators[job.folder]).seems_known(backend, kernel, job.cases[0])

        jobs = _worthwhile(_jobs(tasks, config.tune), is_known)
        self._pending: dict[tuple[str, str, str, int], set[Future[Compiled]]] = {}
        self._all: set[Future[Compiled]] = set()
        self._told = not jobs
        self._pool: ProcessPoolExecutor | None = None
        if not jobs:
            return
        cores = config.tune.workers or max(1, (os.cpu_count() or 2) - 1)
        slices = _slices(jobs, cores)
        workers = min(cores, sum(slices if job.tuned else 1 for job in jobs))
        # PyTorch and the DSLs that ask for it are imported once, in a server that the compilers are forked from: for each
        # it would take seconds.
        context = multiprocessing.get_context("forkserver")
        registry = installed()
        wanted = {name for job in jobs for name in registry.backend(job.backend).value.compilers_import}
        context.set_forkserver_preload(["tilebench_core.precompile", "torch", *sorted(wanted)])
        self._pool = ProcessPoolExecutor(workers, context, _quiet, (str(log), {**os.environ, **environment}))
        # Most cases of a kernel share their code. So every kernel's samples are compiled before anybody's rest: what is
        # left is then found in the compilers' caches, where side by side it would be compiled several times.
        submitted = sorted(
            ((turn, part, job) for job in jobs for turn, part in enumerate(_parts(job.cases))),
            key=lambda entry: (min(entry[0], 1), -len(entry[2].cases)),
        )
        for _, part, job in submitted:
            options, parts = dict(config.backends[job.backend] or {}), slices if job.tuned else 1
            search = _Search(config, device, operators[job.folder]) if job.tuned else None
            for number in range(parts):
                future = self._pool.submit(
                    _compile_job,
                    job.backend,
                    options,
                    job.module,
                    job.folder,
                    part,
                    search,
                    device.arch,
                    (number, parts),
                )
                self._all.add(future)
                for case in job.waiting or part:
                    self._pending.setdefault((job.folder, case.dtype, case.kind, case.index), set()).add(future)

    def ready(self, task: CaseTask) -> bool:
        """True if everything that `task` needs has been compiled, or has failed to."""
        key = task.operator.folder, task.case.dtype, task.case.kind, task.case.index
        return all(future.done() for future in self._pending.get(key, ()))

    def wait(self, seconds: float) -> None:
        """Wait until another part is compiled, for `seconds` at most."""
        wait([future for future in self._all if not future.done()], seconds, return_when=FIRST_COMPLETED)

    def report(self) -> None:
        """Say once how long it took, when everything is compiled."""
        if not self._told and all(future.done() for future in self._all):
            self._told = True
            done = [future.result() for future in self._all if not future.exception()]
            failures = [failure for one in done for failure in one.failures]
            dead = sum(1 for future in self._all if future.exception())
            text = f"compiled {sum(one.configurations for one in done)} configurations ahead"
            text += f" in {time.monotonic() - self._started:.0f} s"
            text += f", {len(failures)} failed (one: {failures[0]})" if failures else ""
            self._say(text + (f", {dead} compilers died" if dead else ""))

    def close(self) -> None:
        """Stop compiling."""
        if self._pool is not None:
            processes = list((self._pool._processes or {}).values())
            self._pool.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.kill()  # a compiler in the middle of minutes of work does not listen
            self._pool = None


def _parts(cases: Sequence[Case]) -> list[list[Case]]:
    """A sample of the cases (the first, the middle and the last one), then the others in groups."""
    sample = sorted({0, len(cases) // 2, len(cases) - 1})
    rest = [case for place, case in enumerate(cases) if place not in sample]
    return [
        [cases[place] for place in sample],
        *(rest[start : start + _CASES_PER_JOB] for start in range(0, len(rest), _CASES_PER_JOB)),
    ]


_CASES_PER_JOB = 8
