"""Budgets: whether the next request could exceed one, told before it is sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilebench_core.errors import RequestError
from tilebench_core.llm.protocol import Budget
from tilebench_core.llm.rounds import Round, Trajectory
from tilebench_core.llm.usage import Amount, Price, Usage, cost_of, total

__all__ = ["NextRequest", "check_priced", "exceeded", "worst_case"]

_MARGIN = 1.25
"""A later prompt is taken to need this much more tokens per byte than the earlier ones of its trajectory did."""


@dataclass(frozen=True, kw_only=True)
class NextRequest:
    """The most that a request can use: tokens of its prompt and its reply, and US dollars (None without a price)."""

    tokens: float
    money_usd: float | None


def worst_case(prompt: str, max_output_tokens: int, rounds: Sequence[Round], price: Price | None) -> NextRequest:
    """The most that a request can use.

    A token is at least one byte of text; where earlier replies told how many tokens a prompt took, their ratio counts.
    """
    ratios = [
        (r.usage.tokens.value - (r.usage.output_tokens or 0)) / r.prompt_bytes
        for r in rounds
        if r.usage is not None and r.usage.tokens.complete and r.prompt_bytes
    ]
    per_byte = min(1.0, _MARGIN * max(ratios)) if ratios and max(ratios) > 0 else 1.0
    inputs = int(len(prompt.encode()) * per_byte) + 64  # what an API adds around a message
    used = Usage(input_tokens=inputs, cached_input_tokens=0, cache_write_tokens=0, output_tokens=max_output_tokens)
    money = None if price is None else cost_of(used, price).value
    return NextRequest(tokens=inputs + max_output_tokens, money_usd=money)


def check_priced(budget: Budget, price: Price | None, model: str) -> None:
    """Refuse a budget of money for a model whose price is unknown. Raises RequestError."""
    if budget.money_usd is not None and price is None:
        raise RequestError(
            f"a budget of money needs the price of {model!r}: add 'model.price={{input: …, output: …}}', in US dollars per million"
        )


def exceeded(budget: Budget, trajectories: Sequence[Trajectory], request: NextRequest, scope: str) -> str | None:
    """Why `request` could exceed `budget` after what `trajectories` used, or None.

    A total that is a lower bound counts as it is, and each lost reply as much as the largest one that is known.
    """
    tokens, money = total(t.tokens for t in trajectories), total(t.money for t in trajectories)
    rounds = [each for trajectory in trajectories for each in trajectory.rounds]
    lost = sum(each.lost for each in rounds)
    if budget.tokens is not None:
        most = max([request.tokens, *(r.usage.tokens.value for r in rounds if r.usage)])
        if tokens.value + lost * most + request.tokens > budget.tokens:
            return f"{scope}.tokens={budget.tokens}: {tokens} used, and the next request may take {request.tokens:.0f}"
    if budget.money_usd is not None and request.money_usd is not None:
        dearest = max([request.money_usd, *(r.cost_usd.value for r in rounds)])
        if money.value + lost * dearest + request.money_usd > budget.money_usd:
            return f"{scope}.money_usd={budget.money_usd}: {_usd(money)} spent, and the next request may cost ${request.money_usd:.4f}"
    if budget.rounds is not None and sum(r.usage is not None for r in rounds) >= budget.rounds:
        return f"{scope}.rounds={budget.rounds}: all used"
    if budget.wall_s is not None:
        seconds = sum(t.seconds for t in trajectories)
        longest = max((t.seconds / max(1, len(t.rounds)) for t in trajectories), default=0.0)
        if seconds + longest > budget.wall_s:
            return f"{scope}.wall_s={budget.wall_s}: {seconds:.0f} s used, and a round takes about {longest:.0f} s"
    return None


def _usd(amount: Amount) -> str:
    return f"{'' if amount.complete else '≥ '}${amount.value:.4f}"
