"""The process that is profiled: `python -m tilebench_core.diagnosis.capture trace|profile JOBS ANSWERS`.

For each job it draws the inputs, compiles, warms up, evicts the L2 cache and calls `run` once. `trace` says which kernels
that call launches; `profile` puts it between profiler start and stop, inside an NVTX range with the job's key, and runs
under Nsight Compute. ANSWERS holds one JSON line per job; under application replay each pass writes it anew.

Behind the call the cache is drained in a range of its own: the bytes that the drain writes to DRAM are those that the
call left in the cache, and belong to its traffic.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any

__all__ = ["DRAIN_RANGE", "RUN_RANGE", "main"]

RUN_RANGE, DRAIN_RANGE = "tilebench-run:", "tilebench-drain:"
_WARM_UP = 3
_UNKNOWN_L2_BYTES = 64 * 1024 * 1024


class Cache:
    """The L2 cache: `evict` fills it with clean lines of a buffer that no kernel uses, so that nothing of it is written
    back at a kernel's expense; `drain` does the same to push a kernel's own lines out."""

    def __init__(self, device: str) -> None:
        import torch

        size = torch.cuda.get_device_properties(device).L2_cache_size or _UNKNOWN_L2_BYTES
        self._buffer = torch.zeros(4 * size // 4, dtype=torch.float32, device=device)

    def drain(self) -> None:
        """Read four times as much as the cache holds."""
        self._buffer.sum()

    evict = drain


def main(arguments: list[str]) -> int:
    """Serve all jobs; a job that fails is told in its answer and the others go on."""
    mode, jobs_path, answers_path = arguments
    with open(jobs_path, encoding="utf-8") as file:
        request = json.load(file)
    for name, value in request["environment"].items():
        os.environ[name] = value  # read when a DSL is imported, below
    import torch

    torch.set_num_threads(1)
    with open(answers_path, "w", encoding="utf-8", buffering=1) as answers:
        cache = Cache(request["device"])
        tracer = None
        if mode == "trace":
            from tilebench_core.timing.trace import ActivityTrace

            tracer = ActivityTrace()
        for raw in request["jobs"]:
            _say(answers, raw["key"], started=True)
            try:
                _serve(raw, request, cache, tracer, answers)
            except Exception as error:  # one job's failure is its answer; the others still have their turn
                _say(answers, raw["key"], error=f"{type(error).__name__}: {' '.join(str(error).split())[:400]}")
            torch.cuda.empty_cache()
        if tracer is not None:
            tracer.close()
    return 0


def _say(answers: IO[str], key: str, **values: Any) -> None:
    answers.write(json.dumps({"key": key, **values}) + "\n")


def _serve(raw: Mapping[str, Any], request: Mapping[str, Any], cache: Cache, tracer: Any, answers: IO[str]) -> None:
    import torch

    with _prepared(raw["job"], request["device"], compiled=tracer is not None) as (run, own):
        for _ in range(_WARM_UP):
            run()
        cache.evict()
        torch.cuda.synchronize()
        if tracer is not None:
            traced, drained = tracer.of(run), tracer.of(cache.drain)
            _say(
                answers, raw["key"], kernels=traced.kernels, others=traced.others, own=own, drain=drained.kernels,
                device=torch.cuda.get_device_name(),
            )  # fmt: skip
            return
        _profiled(f"{RUN_RANGE}{raw['key']}", run)
        if request["drain"]:
            _profiled(f"{DRAIN_RANGE}{raw['key']}", cache.drain)
        _say(answers, raw["key"], done=True)


def _profiled(name: str, call: Callable[[], object]) -> None:
    import torch

    profiler: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]  # PyTorch leaves these untyped
    torch.cuda.synchronize()
    profiler.cudaProfilerStart()
    torch.cuda.nvtx.range_push(name)  # type: ignore[no-untyped-call]  # the same
    call()
    torch.cuda.synchronize()
    torch.cuda.nvtx.range_pop()  # type: ignore[no-untyped-call]  # the same
    profiler.cudaProfilerStop()


@contextmanager
def _prepared(job: Mapping[str, Any], device: str, compiled: bool) -> Iterator[tuple[Callable[[], object], list[str]]]:
    """`run` on drawn inputs; and, if it is to be `compiled` by the backend first, under what names that knows its kernels.

    Without that the first warm-up compiles, from the DSL's cache: collecting the code again in every pass takes longer.
    """
    from tilebench_core.case import Case
    from tilebench_core.definition import Draw
    from tilebench_core.registry import installed
    from tilebench_core.verify import precision_state

    registry = installed()
    operator, plugin = registry.operator(job["operator"]), registry.backend(job["backend"])
    backend = plugin.value(plugin.value.Options(**job["options"]))
    sources = registry.kernels_for(operator, job["backend"])
    kernel = next(source for source in sources if job["provider"] in (None, str(source.provider))).load()
    case = Case(operator.name, job["dtype"], job["params"], index=job["case_index"])
    inputs = operator.load().inputs(case, Draw(device, 0))
    with precision_state(job["precision"]), backend.session():
        launches = backend.compile(kernel, inputs, job["config"]).launches if compiled else ()
        yield lambda: backend.launch(kernel, inputs, job["config"]), [launch.name for launch in launches]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
