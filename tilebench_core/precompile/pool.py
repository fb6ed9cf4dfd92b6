"""The processes that compile, and what the runner asks them."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from tilebench_core.case import Case
from tilebench_core.config import RunConfig
from tilebench_core.device import MULTIPROCESSORS, Device
from tilebench_core.plan import CaseTask
from tilebench_core.precompile.jobs import CaseKey, Followers, Job, jobs_of, key_of, parts_of, slices_of, worthwhile
from tilebench_core.precompile.work import ComingSearch, Compiled, compile_job, loaded
from tilebench_core.registry import installed

__all__ = ["Precompiler"]


def _quiet(log: str, environment: Mapping[str, str]) -> None:
    """Send what a compiler prints to the campaign's log, and hide the GPU: compilers must not make contexts on it."""
    from tilebench_core.precompile.server import STARTED_WITH

    imported = {name: value for name, value in os.environ.items() if STARTED_WITH.get(name) != value}
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

        def is_known(job: Job) -> bool:
            backend, kernel = loaded(job.backend, config.backends[job.backend] or {}, job.module, operators[job.folder])
            return ComingSearch(config, device, operators[job.folder]).seems_known(backend, kernel, job.cases[0])

        jobs = worthwhile(jobs_of(tasks, config.tune), is_known)
        self._followers = Followers(jobs)
        self._config, self._device, self._operators = config, device, operators
        self._pending: dict[CaseKey, set[Future[Compiled]]] = {}
        self._all: set[Future[Compiled]] = set()
        self._told = not jobs
        self._pools: list[ProcessPoolExecutor] = []
        if not jobs:
            return
        cores = config.tune.workers or max(1, (os.cpu_count() or 2) - 1)
        slices = slices_of(jobs, cores)
        workers = min(cores, sum(slices if job.tuned else 1 for job in jobs))
        # PyTorch and the DSLs that ask for it are imported once, in a server that the compilers are forked from: for each
        # it would take seconds.
        context = multiprocessing.get_context("forkserver")
        registry = installed()
        wanted = {name for job in jobs for name in registry.backend(job.backend).value.compilers_import}
        server = ["tilebench_core.precompile.server", "tilebench_core.precompile.work", "torch"]
        context.set_forkserver_preload([*server, *sorted(wanted)])
        known = {
            **os.environ,
            **environment,
            MULTIPROCESSORS: str(device.multiprocessors),
        }  # the processes cannot see it
        # Those that follow a search have a few processes of their own, or they would queue behind all that are searched.
        counts = [workers, max(1, workers // 4)] if any(job.waiting for job in jobs) else [workers]
        self._pools = [ProcessPoolExecutor(count, context, _quiet, (str(log), known)) for count in counts]
        # Most cases of a kernel share their code. So every kernel's samples are compiled before anybody's rest: what is
        # left is then found in the compilers' caches, where side by side it would be compiled several times.
        submitted = sorted(
            ((turn, part, job) for job in jobs for turn, part in enumerate(parts_of(job.cases))),
            key=lambda entry: (min(entry[0], 1), -len(entry[2].cases)),
        )
        for _, part, job in submitted:
            self._submit(self._pools[0], job, part, slices if job.tuned else 1)

    def _submit(self, pool: ProcessPoolExecutor, job: Job, cases: list[Case], parts: int) -> None:
        """Compile what `job` needs for `cases`, in so many parts side by side."""
        options = dict(self._config.backends[job.backend] or {})
        search = ComingSearch(self._config, self._device, self._operators[job.folder]) if job.tuned else None
        for number in range(parts):
            future = pool.submit(
                compile_job,
                job.backend,
                options,
                job.module,
                job.folder,
                cases,
                search,
                self._device.arch,
                (number, parts),
            )
            self._all.add(future)
            for case in cases:
                self._pending.setdefault(key_of(job.folder, case), set()).add(future)

    def finished(self, task: CaseTask) -> None:
        """Take note that `task` has run: winners that it found are compiled for the cases that share them."""
        for job in self._followers.after(key_of(task.operator.folder, task.case)):
            try:
                for case in job.cases if self._pools else ():
                    self._submit(self._pools[-1], job, [case], 1)
            except BrokenProcessPool:  # some compiler has died; the worker compiles for itself
                continue

    def ready(self, task: CaseTask) -> bool:
        """True if everything that `task` needs has been compiled, or has failed to."""
        key = key_of(task.operator.folder, task.case)
        return not self._followers.held(key) and all(future.done() for future in self._pending.get(key, ()))

    @property
    def idle(self) -> bool:
        """True if nothing is being compiled."""
        return all(future.done() for future in self._all)

    def wait(self, seconds: float) -> None:
        """Wait until another part is compiled, for `seconds` at most."""
        wait([future for future in self._all if not future.done()], seconds, return_when=FIRST_COMPLETED)

    def report(self) -> None:
        """Say once how long it took, when everything is compiled."""
        if not self._told and self.idle:
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
        for pool in self._pools:
            processes = list((pool._processes or {}).values())
            pool.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.kill()  # a compiler in the middle of minutes of work does not listen
        self._pools = []
