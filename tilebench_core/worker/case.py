"""One case in the worker: inputs and reference, then per backend compile and verify, then timing in turns, then records."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from tilebench_core.backend import Compilation
from tilebench_core.environment import now
from tilebench_core.errors import BackendError, CompileError, DeviceOutOfMemory, LaunchError, TilebenchError
from tilebench_core.kernel import Config, Kernel
from tilebench_core.outcomes import Outcome
from tilebench_core.packs import Operator
from tilebench_core.plan import Trial
from tilebench_core.records import record_to_json
from tilebench_core.timing.clock import ClockError
from tilebench_core.timing.rounds import Timing
from tilebench_core.verify import PreparedCase, Verdict, precision_state, prepare_case, verify_launch
from tilebench_core.worker.messages import Emitter, TaskMessage
from tilebench_core.worker.session import Session

__all__ = ["DeviceLost", "Run", "run_case"]


class DeviceLost(Exception):
    """The device reported an error that no later call can survive; the worker must be replaced."""


@dataclass
class Run:
    """The state of one trial while its case is in the worker."""

    trial: Trial
    kernel: Kernel | None = None
    config: Config | None = None
    config_source: str | None = None
    compilation: Compilation | None = None
    verdict: Verdict | None = None
    end: tuple[Outcome, str] | None = None
    check: str | None = None
    timing: Timing | None = None
    graph: bool | None = None
    graph_reason: str | None = None
    outputs: Any = None
    peak_bytes: int | None = None
    device_s: float | None = None
    device_state: Mapping[str, Any] | None = None
    interpreted: bool = False
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def clocked(self, step: str) -> Iterator[None]:
        """Add the wall time of a step to the record's accounting."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[step] = self.seconds.get(step, 0.0) + time.perf_counter() - start


def run_case(session: Session, task: TaskMessage, emitter: Emitter) -> None:
    """Carry out `task` and emit one record per trial. Raises DeviceLost after a sticky error of the device."""
    operator = session.operator(task)
    runs = [Run(trial, end=trial.verdict) for trial in task.trials]
    precision = operator.config.precision(task.case.dtype)
    started, begun = now(), time.perf_counter()
    prepared = _prepare(session, operator, task, runs, emitter)
    if prepared is not None:
        names = [run.trial.backend for run in runs if run.end is None]
        with precision_state(precision), session.backend_session(names):
            for run in runs:
                if run.end is None:
                    _compile_and_verify(session, operator, task, run, prepared, emitter)
            ready = [run for run in runs if run.end is None and not run.interpreted]
            if ready and task.case.kind != "edge":
                from tilebench_core.worker.timed import time_runs

                try:
                    time_runs(session, task, ready, prepared, emitter)
                except (
                    ClockError
                ) as error:  # nothing replaces the configured clock: each record says what stood in its way
                    for run in ready:
                        run.end = run.end or (Outcome.ERROR, str(error))
    from tilebench_core.worker.describe import describe

    for run in runs:
        if run.end is not None and run.end[0] is Outcome.UNAVAILABLE:
            compile_offline(session, operator, task, run, emitter)
    accounted = sum(sum(run.seconds.values()) for run in runs)
    rest = (time.perf_counter() - begun - accounted) / len(runs)
    for run in runs:
        with run.clocked("keep"):
            record = describe(session, operator, task, run, prepared, started)
        seconds = {step: round(value, 6) for step, value in {**run.seconds, "rest": rest}.items()}
        emitter.record(record_to_json(replace(record, seconds=seconds)))
    if session.device.is_gpu:
        del prepared, runs
        settle_memory()


def settle_memory() -> None:
    """Give cached memory back once a quarter of the device is reserved: freeing it after each case would cost more."""
    import torch

    free, total = torch.cuda.mem_get_info()
    if total - free > total // 4:
        release_memory()


def release_memory() -> None:
    """Give the device's memory back, so that what comes next starts with all of it."""
    import torch

    gc.collect()
    torch.cuda.empty_cache()


def _prepare(
    session: Session, operator: Operator, task: TaskMessage, runs: list[Run], emitter: Emitter
) -> PreparedCase | None:
    """Draw the inputs and compute the references; if that fails every open trial ends with the reason."""
    open_runs = [run for run in runs if run.end is None]
    if not open_runs:
        return None
    emitter.step(None, "inputs and reference", session.limits.prepare_s)
    start = time.perf_counter()
    try:
        with precision_state("fp32"):
            prepared = prepare_case(
                task.case,
                session.definition(operator),
                session.reference(operator),
                lambda dtype: operator.config.tolerance(task.case, dtype),
                session.device.torch_name,
                session.seed,
            )
            synchronise(session)
    except Exception as error:  # the case cannot be judged: each of its trials is told why
        end = classify(error)
        if end[0] is not Outcome.OUT_OF_MEMORY:
            end = (Outcome.INVALID_REFERENCE, f"{type(error).__name__}: {error}")
        for run in open_runs:
            run.end = end
        check_device(session, error)
        return None
    for run in open_runs:
        run.seconds["inputs and reference"] = (time.perf_counter() - start) / len(open_runs)
    return prepared


def synchronise(session: Session) -> None:
    """Wait for the device."""
    if session.device.is_gpu:
        import torch

        torch.cuda.synchronize()


def check_device(session: Session, error: BaseException) -> None:
    """Raise DeviceLost if the device no longer answers after `error`."""
    if not session.device.is_gpu:
        return
    try:
        synchronise(session)
    except Exception as sticky:
        raise DeviceLost(f"{first_line(error)} (the device no longer answers: {first_line(sticky)})") from error


def first_line(error: BaseException) -> str:
    """The first line of an error's message, with its type where that says more."""
    text = str(error).strip().splitlines()
    return (
        text[0] if text and isinstance(error, TilebenchError) else f"{type(error).__name__}: {text[0] if text else ''}"
    )


def classify(error: BaseException) -> tuple[Outcome, str]:
    """The outcome that an exception of a kernel or a backend stands for, and its reason in one line."""
    import torch

    text = str(error)
    if isinstance(error, (MemoryError, DeviceOutOfMemory, torch.OutOfMemoryError)) or "can't allocate memory" in text:
        return Outcome.OUT_OF_MEMORY, first_line(error)
    if isinstance(error, CompileError):
        return Outcome.COMPILE_ERROR, first_line(error)
    if isinstance(error, LaunchError) and isinstance(error.__cause__, MemoryError):
        return Outcome.OUT_OF_MEMORY, first_line(error.__cause__)
    return Outcome.LAUNCH_ERROR, first_line(error)


@contextmanager
def charged(session: Session, run: Run) -> Iterator[None]:
    """Turn any exception inside into the end of `run`; raise DeviceLost if the device did not survive it."""
    try:
        yield
    except Exception as error:  # a trial's failure is its record
        run.end = classify(error)
        check_device(session, error)
        if run.end[0] is Outcome.OUT_OF_MEMORY and session.device.is_gpu:
            release_memory()


def _compile_and_verify(
    session: Session, operator: Operator, task: TaskMessage, run: Run, prepared: PreparedCase, emitter: Emitter
) -> None:
    trial, backend = run.trial, session.backends[run.trial.backend]
    with charged(session, run):
        emitter.step(trial.trial_id, "compile", session.limits.compile_s)
        with run.clocked("compile"):
            run.kernel = session.kernel(operator, trial.backend, trial.module)
            reason = run.kernel.unsupported(task.case, session.device)
            if reason is not None:
                run.end = (Outcome.UNSUPPORTED, reason)
                return
            run.config, run.config_source = dict(run.kernel.default(task.case)), "default"
        if trial.mode == "tuned":
            from tilebench_core.tune import tuned_config

            with run.clocked("tune"):
                tuned = tuned_config(session, operator, task, run, prepared, emitter)
            if tuned is None:  # it cannot be tuned here, and run.end says why
                return
            run.config, run.config_source = tuned
            emitter.step(trial.trial_id, "compile", session.limits.compile_s)
        with run.clocked("compile"):
            run.compilation = backend.compile(run.kernel, prepared.inputs, run.config)
        run.interpreted = backend.interpreted(session.device)
        emitter.step(trial.trial_id, "run", session.limits.run_s)
        with run.clocked("verify"):
            run.verdict = verify_launch(prepared, _measuring_memory(session, run, launcher(session, run, prepared)))
            synchronise(session)
        if not run.verdict.passed:
            run.end, run.check = (Outcome.WRONG, str(run.verdict.message)), run.verdict.check


def launcher(session: Session, run: Run, prepared: PreparedCase) -> Callable[[], Any]:
    """A call of the run's kernel on the live inputs."""
    backend, kernel, config = session.backends[run.trial.backend], run.kernel, run.config
    assert kernel is not None
    assert config is not None
    return lambda: backend.launch(kernel, prepared.inputs, config)


def _measuring_memory(session: Session, run: Run, launch: Callable[[], Any]) -> Callable[[], Any]:
    """`launch`, noting on its first call how much memory it allocated at its peak, outputs included."""
    if not session.device.is_gpu:
        return launch

    def measured() -> Any:
        import torch

        if run.peak_bytes is not None:
            return launch()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        outputs = launch()
        run.peak_bytes = torch.cuda.max_memory_allocated() - before
        return outputs

    return measured


def compile_offline(session: Session, operator: Operator, task: TaskMessage, run: Run, emitter: Emitter) -> None:
    """Where a backend cannot run, compile its kernel for `device.compile_for` all the same, and say what came of it."""
    from tilebench_core.definition import Draw
    from tilebench_core.device import target_device

    trial, backend, arch = run.trial, session.backends[run.trial.backend], session.compile_for
    assert run.end is not None
    unavailable = run.end[1]
    if session.device.is_gpu or trial.mode != "default":
        return
    emitter.step(trial.trial_id, "compile", session.limits.compile_s)
    try:
        run.kernel = session.kernel(operator, trial.backend, trial.module)
        reason = run.kernel.unsupported(task.case, target_device(arch))
        if reason is not None:
            run.end = (Outcome.UNSUPPORTED, reason)
            return
        run.config, run.config_source = dict(run.kernel.default(task.case)), "default"
        key = trial.module, task.case.dtype, tuple(sorted(run.config.items()))
        if key not in session.compiled_offline:
            inputs = session.definition(operator).inputs(task.case, Draw("cpu", session.seed))
            session.compiled_offline[key] = backend.compile_for(run.kernel, inputs, run.config, arch)
        run.compilation = session.compiled_offline[key]
        run.end = (
            Outcome.UNAVAILABLE,
            f"compiled for {arch} in {run.compilation.seconds:.1f} s, not run: {unavailable}",
        )
    except (ImportError, NotImplementedError):
        pass  # the DSL is not installed or has no offline compiler: the reason stays what it was
    except BackendError as error:
        run.end = classify(error)
