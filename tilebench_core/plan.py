"""The plan: operators × dtypes × cases × backends × modes as trials with stable ids.

An id is a hash of everything that can change the number, so that a changed kernel, version or protocol is a new trial
and the same command again only fills what is missing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from tilebench_core.case import Case
from tilebench_core.config import RunConfig
from tilebench_core.device import Device
from tilebench_core.errors import RequestError, nearest
from tilebench_core.operator_config import OperatorConfig, parse_operator_config
from tilebench_core.outcomes import Outcome
from tilebench_core.packs import KernelSource, Operator
from tilebench_core.registry import Registry

__all__ = ["CaseTask", "Trial", "make_plan", "planned_operators"]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One case on one backend, by one provider's kernel, in one mode.

    `kernel` is the hash of the kernel's source; `verdict` holds an end that is known already.
    """

    trial_id: str
    backend: str
    provider: str | None
    module: str | None
    mode: str
    kernel: str | None = None
    verdict: tuple[Outcome, str] | None = None


@dataclass(frozen=True, kw_only=True)
class CaseTask:
    """One case with all its trials: what a worker does in one go, so that the backends can take turns."""

    operator: Operator
    case: Case
    trials: tuple[Trial, ...]
    changed: bool

    def only(self, wanted: Iterable[str]) -> CaseTask:
        """The task with nothing but the trials whose ids are in `wanted`."""
        kept = set(wanted)
        return replace(self, trials=tuple(trial for trial in self.trials if trial.trial_id in kept))

    def without(self, done: Iterable[str]) -> CaseTask:
        """The task without the trials whose ids are in `done`."""
        finished = set(done)
        return replace(self, trials=tuple(trial for trial in self.trials if trial.trial_id not in finished))


def planned_operators(registry: Registry, config: RunConfig) -> list[tuple[Operator, bool]]:
    """The chosen operators with their composed configuration, and whether the command line changed it."""
    chosen = []
    for folder, raw in config.operators.items():
        operator = registry.operator(folder)
        original = {**operator.config.raw, "case_grid": operator.config.axes}
        changed = _digest(raw) != _digest(original)
        checked = parse_operator_config(raw, operator.config.where, folder) if changed else operator.config
        chosen.append((replace(operator, config=checked), changed))
    return chosen


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def chosen_dtypes(operator: OperatorConfig, wanted: Sequence[str] | None) -> list[str]:
    """The operator's dtypes among those that were asked for, all of them for None."""
    return [dtype for dtype in operator.dtypes if wanted is None or dtype in wanted]


def chosen_cases(operator: OperatorConfig, dtype: str, wanted: Sequence[int | str]) -> list[Case]:
    """The cases of `dtype` that `wanted` names, in order, without repetition."""
    grid = operator.cases(dtype)
    found: dict[tuple[str, int], Case] = {}
    for item in wanted:
        if isinstance(item, int):
            if not 0 <= item < len(grid):
                raise RequestError(f"case {item} of {operator.name}: expected an index from 0 to {len(grid) - 1}")
            cases: Iterable[Case] = [grid[item]]
        elif item in ("grid", "edge", "smoke"):
            cases = operator.cases(dtype, item)
        elif item in ("largest", "first"):
            cases = [grid[-1 if item == "largest" else 0]]
        else:
            known = ("grid", "edge", "smoke", "largest", "first")
            raise RequestError(f"cases={item!r}: expected {', '.join(known)} or an index.{nearest(item, known)}")
        found.update({(case.kind, case.index): case for case in cases})
    return list(found.values())


def make_plan(
    registry: Registry,
    config: RunConfig,
    device: Device,
    versions: Mapping[str, Mapping[str, str]],
    unavailable: Mapping[str, str],
) -> list[CaseTask]:
    """Plan every trial of `config`. `unavailable` maps a backend to the reason why it cannot run here.

    Raises RequestError for a dtype that no chosen operator has, or a case that does not exist.
    """
    operators = planned_operators(registry, config)
    known = sorted({dtype for operator, _ in operators for dtype in operator.config.dtypes})
    for dtype in config.dtypes or ():
        if dtype not in known:
            raise RequestError(
                f"no chosen operator has dtype {dtype!r}; they have {', '.join(known)}.{nearest(dtype, known)}"
            )
    common = {
        "timing": {k: v for k, v in asdict(config.timing).items() if k not in ("keep_profile", "profile_dir")},
        "seed": config.seed,
        "device": [device.name, device.arch, device.driver],
    }
    tasks = []
    for operator, changed in operators:
        shared = {
            **common,
            "operator": operator.name,
            "config": _digest(operator.config.raw),
            "source": _source(operator),
        }
        bases = _bases(registry, config, operator, shared, versions, unavailable)
        for dtype in chosen_dtypes(operator.config, config.dtypes):
            for case in chosen_cases(operator.config, dtype, config.chosen_cases):
                trials = tuple(_with_id(base, trial, case) for base, trial in bases)
                tasks.append(CaseTask(operator=operator, case=case, trials=trials, changed=changed))
    return tasks


def _source(operator: Operator) -> str:
    return hashlib.sha256(operator.path.read_bytes()).hexdigest()[:16]


def _with_id(base: str, trial: Trial, case: Case) -> Trial:
    key = f"{base}|{case.dtype}|{json.dumps(case.params, sort_keys=True, default=str)}|{case.kind}"
    return replace(trial, trial_id=hashlib.sha256(key.encode()).hexdigest()[:20])


def _bases(
    registry: Registry,
    config: RunConfig,
    operator: Operator,
    shared: Mapping[str, Any],
    versions: Mapping[str, Mapping[str, str]],
    unavailable: Mapping[str, str],
) -> list[tuple[str, Trial]]:
    """What is the same for all cases of an operator: per backend, provider and mode the hashed part of the id."""
    bases = []
    tuning = {k: v for k, v in asdict(config.tune).items() if k != "workers"}
    if config.tune.share != "case":
        tuning["against_default"] = True  # since shared winners must beat the default
    for backend in config.backends:
        kernels: Sequence[KernelSource | None] = registry.kernels_for(operator, backend) or [None]
        for kernel in kernels:
            for mode in config.modes if registry.backend(backend).value.tunable else ("default",):
                identity = {
                    **shared,
                    "backend": backend,
                    "options": config.backends[backend],
                    "versions": versions.get(backend, {}),
                    "provider": str(kernel.provider) if kernel else None,
                    "kernel": kernel.source_hash if kernel else None,
                    "mode": mode,
                    "tune": tuning if mode == "tuned" else None,
                }
                trial = Trial(
                    trial_id="",
                    backend=backend,
                    provider=str(kernel.provider) if kernel else None,
                    module=kernel.module if kernel else None,
                    mode=mode,
                    kernel=kernel.source_hash if kernel else None,
                    verdict=_known_end(operator, backend, kernel, unavailable),
                )
                bases.append((_digest(identity), trial))
    return bases


def _known_end(
    operator: Operator, backend: str, kernel: KernelSource | None, unavailable: Mapping[str, str]
) -> tuple[Outcome, str] | None:
    if kernel is None:
        reason = f"no installed pack holds {operator.folder}/impl_{backend}.py; `tilebench new kernel` makes a skeleton"
        return Outcome.MISSING, reason
    if backend in unavailable:
        return Outcome.UNAVAILABLE, unavailable[backend]
    return None
