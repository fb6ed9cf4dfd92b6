"""A/A: one kernel timed against itself, to learn what a difference must exceed before it means anything."""

from __future__ import annotations

import statistics

from tilebench_core.timing import Entry, time_entries
from tilebench_core.timing.gpu import capture
from tilebench_core.verify import precision_state, prepare_case
from tilebench_core.worker.messages import Emitter, TaskMessage
from tilebench_core.worker.session import Session

__all__ = ["COMPARISONS", "measure_noise"]

COMPARISONS = 10
"""How often each case is compared with itself."""


def measure_noise(session: Session, task: TaskMessage, emitter: Emitter) -> None:
    """Time the first trial's kernel as two entries, `COMPARISONS` times, and send the ratios of their medians."""
    operator = session.operator(task)
    trial = task.trials[0]
    backend = session.backends[trial.backend]
    emitter.step(trial.trial_id, "noise floor", session.limits.time_s)
    with precision_state("fp32"):
        prepared = prepare_case(
            task.case,
            session.definition(operator),
            session.reference(operator),
            lambda dtype: operator.config.tolerance(task.case, dtype),
            session.device.torch_name,
            session.seed,
        )
    ratios = []
    with precision_state(operator.config.precision(task.case.dtype)), session.clock.case():
        kernel = session.kernel(operator, trial.backend, trial.module)
        config = kernel.default(task.case)
        backend.compile(kernel, prepared.inputs, config)
        graphs = [capture(lambda: backend.launch(kernel, prepared.inputs, config)) for _ in range(2)]
        entries = [Entry(str(index), graph.replay, graph.replay) for index, graph in enumerate(graphs)]
        # A clock that yields one mean per session can be asked once only.
        for _ in range(1 if session.clock.means_only else COMPARISONS):
            timings = time_entries(entries, session.timing, session.clock, session.before_launch)
            a, b = (statistics.median([sample.busy_us for sample in timing.samples]) for timing in timings)
            if a and b:
                ratios.append(a / b)
    emitter.send("noise", ratios=ratios)
