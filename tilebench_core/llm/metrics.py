"""The figures of the track, from trajectories to numbers. Failures stay in every denominator, and unknown stays unknown."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tilebench_core.llm.attempts import geomean
from tilebench_core.llm.rounds import Round, Trajectory
from tilebench_core.llm.usage import Amount, total

__all__ = ["BudgetPoint", "Result", "Standing", "efficiency_over_budget", "matched_ratio", "results_of", "standings"]


@dataclass(frozen=True, kw_only=True)
class Result:
    """One operator in one DSL by one model under one condition.

    `speedup` and `efficiency` are those of the best clean attempt: 0 where there is none, None where it was not timed.
    Tokens and money are all of the trajectory; `*_share` divides each round among the backends that it asked for. In a joint
    trajectory neither reading can be attributed to the DSL: one is too high, the other a guess, so both are given.
    """

    model: str
    condition: str
    operator: str
    backend: str
    dtypes: tuple[str, ...]
    rounds: int
    clean_rounds: int
    best_round: int | None
    frozen_round: int | None
    speedup: float | None
    efficiency: float | None
    tokens: Amount
    tokens_share: Amount
    money: Amount
    money_share: Amount
    joint: bool
    end: str

    @property
    def passed(self) -> bool:
        """True if any attempt was clean."""
        return self.best_round is not None

    @property
    def per_mtoken(self) -> float | None:
        """Best speedup per million tokens, all tokens of the trajectory charged; 0 for a failure."""
        return _ratio(self.speedup, self.tokens)

    @property
    def per_mtoken_share(self) -> float | None:
        """The same with the tokens of each round divided among its backends."""
        return _ratio(self.speedup, self.tokens_share)


def _ratio(speedup: float | None, tokens: Amount) -> float | None:
    return None if speedup is None or not tokens.value else speedup / (tokens.value / 1e6)


def results_of(trajectories: Iterable[Trajectory]) -> list[Result]:
    """A result for every backend of every trajectory."""
    found = []
    for trajectory in trajectories:
        for backend in trajectory.key["backends"]:
            mine = [each for each in trajectory.rounds if backend in each.backends]
            best = trajectory.best(backend)
            clean = [number for number, attempt in trajectory.attempts(backend) if attempt.status.is_clean]
            found.append(
                Result(
                    model=trajectory.key["model"], condition=trajectory.key["condition"], operator=trajectory.key["operator"],
                    backend=backend, dtypes=tuple(trajectory.key["dtypes"]), rounds=len(mine), clean_rounds=len(clean),
                    best_round=best[0] if best else None, frozen_round=trajectory.frozen.get(backend),
                    speedup=best[1].speedup if best else 0.0, efficiency=best[1].efficiency if best else 0.0,
                    tokens=total(each.tokens for each in mine), tokens_share=total(_part(r.tokens, r) for r in mine),
                    money=total(each.money for each in mine), money_share=total(_part(r.money, r) for r in mine),
                    joint=len(trajectory.key["backends"]) > 1, end=trajectory.end.value if trajectory.end else "unfinished",
                )
            )  # fmt: skip
    return found


def _part(amount: Amount, each: Round) -> Amount:
    return Amount(amount.value / len(each.backends), amount.complete)


@dataclass(frozen=True, kw_only=True)
class Standing:
    """One model and DSL over all operators. `unknown` results were verified and not timed; they enter no mean."""

    model: str
    condition: str
    backend: str
    operators: int
    passed: int
    unknown: int
    mean_per_mtoken: float | None
    mean_per_mtoken_share: float | None
    median_per_mtoken: float | None
    geomean_speedup_passed: float | None
    median_speedup: float | None
    mean_efficiency: float | None
    tokens: Amount
    money: Amount


def standings(results: Sequence[Result]) -> list[Standing]:
    """The results by model, condition and backend."""
    groups: dict[tuple[str, str, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result.model, result.condition, result.backend), []).append(result)
    found = []
    for (model, condition, backend), mine in sorted(groups.items()):
        speedups = [r.speedup for r in mine if r.speedup is not None]
        found.append(
            Standing(
                model=model, condition=condition, backend=backend, operators=len(mine), passed=sum(r.passed for r in mine),
                unknown=sum(r.speedup is None for r in mine),
                mean_per_mtoken=_mean([r.per_mtoken for r in mine]),
                mean_per_mtoken_share=_mean([r.per_mtoken_share for r in mine]),
                median_per_mtoken=_median([r.per_mtoken for r in mine]),
                geomean_speedup_passed=geomean([s for s in speedups if s > 0]), median_speedup=_median(speedups),
                mean_efficiency=_mean([r.efficiency for r in mine]),
                tokens=total(r.tokens for r in mine), money=total(r.money for r in mine),
            )
        )  # fmt: skip
    return found


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def matched_ratio(
    results: Sequence[Result], model: str, condition: str, one: str, other: str
) -> tuple[float | None, int]:
    """Geometric mean of speedup ratios `one` over `other`, on the operators that both passed, and how many those are."""
    table: dict[str, dict[str, float]] = {}
    for result in results:
        if (result.model, result.condition) == (model, condition) and result.speedup:
            table.setdefault(result.operator, {})[result.backend] = result.speedup
    ratios = [row[one] / row[other] for row in table.values() if one in row and other in row]
    return geomean(ratios), len(ratios)


@dataclass(frozen=True, kw_only=True)
class BudgetPoint:
    """From this budget per operator on (tokens, or US dollars), this mean efficiency is reached over all operators."""

    budget: float
    mean_efficiency: float
    passed: int
    operators: int


def efficiency_over_budget(trajectories: Sequence[Trajectory], backend: str, axis: str) -> list[BudgetPoint]:
    """Best efficiency within a budget, the arithmetic mean over all operators; `axis` is "tokens" or "money".

    An operator without a valid kernel within the budget counts as 0. Trajectories without any time are left to the pass rate.
    """
    paths: list[list[tuple[float, float]]] = []
    for trajectory in trajectories:
        if backend not in trajectory.key["backends"]:
            continue
        spent, best, path = 0.0, 0.0, []
        for each in trajectory.rounds:
            spent += getattr(each, axis).value
            attempt = each.attempts.get(backend)
            best = max(best, (attempt.efficiency if attempt else None) or 0.0)
            path.append((spent, best))
        paths.append(path)
    points = []
    for budget in sorted({spent for path in paths for spent, _ in path}):
        reached = [max((best for spent, best in path if spent <= budget), default=0.0) for path in paths]
        points.append(
            BudgetPoint(
                budget=budget,
                mean_efficiency=statistics.fmean(reached),
                passed=sum(value > 0 for value in reached),
                operators=len(paths),
            )
        )
    return points


def rows_of(trajectories: Sequence[Trajectory]) -> list[dict[str, Any]]:
    """One row per round and backend: what rounds.csv holds."""
    rows = []
    for trajectory in trajectories:
        for each in trajectory.rounds:
            for backend in each.backends:
                attempt = each.attempts.get(backend)
                rows.append({
                    **{key: trajectory.key[key] for key in ("model", "condition", "operator")}, "backend": backend,
                    "round": each.number,
                    "status": attempt.status.value if attempt else "", "reason": (attempt.reason or "") if attempt else "",
                    "verdict": (attempt.verdict or "") if attempt else "", "passed": attempt.passed if attempt else "",
                    "planned": attempt.planned if attempt else "", "speedup": attempt.speedup if attempt else None,
                    "efficiency": attempt.efficiency if attempt else None, "lowest_share": attempt.lowest_share if attempt else None,
                    "geomean_us": attempt.geomean_us if attempt else None, "frozen": backend in each.frozen_after,
                    "tokens_of_round": each.tokens.value, "tokens_complete": each.tokens.complete,
                    "cost_usd_of_round": each.money.value,
                    "cost_complete": each.money.complete, "backends_of_round": len(each.backends),
                    "time_source": next((c.time_source for c in attempt.cases if c.time_source), "") if attempt else "",
                })  # fmt: skip
    return rows
