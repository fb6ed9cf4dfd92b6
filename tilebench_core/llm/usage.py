"""Tokens and money: what a reply used, what it cost, and totals that know when they are lower bounds only."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from tilebench_core.errors import ConfigError
from tilebench_core.operator_config import load_yaml

__all__ = ["Amount", "Price", "Usage", "cost_of", "load_prices", "price_for", "total"]


@dataclass(frozen=True)
class Amount:
    """A sum; `complete` is False where a summand was unknown, so that the value is a lower bound."""

    value: float = 0.0
    complete: bool = True

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.value + other.value, self.complete and other.complete)

    def __str__(self) -> str:
        return f"{'' if self.complete else '≥ '}{self.value:,.6g}"


def total(amounts: Iterable[Amount]) -> Amount:
    """The sum of `amounts`."""
    result = Amount()
    for amount in amounts:
        result = result + amount
    return result


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Tokens of one reply; None where the API does not say.

    `input_tokens` were read and not cached, `cached_input_tokens` came from a cache, `cache_write_tokens` were stored in
    one; `output_tokens` is everything that was written, and `reasoning_tokens` the part of it that is not shown.
    """

    input_tokens: int | None = None
    cached_input_tokens: int | None = None
    cache_write_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and value < 0:
                raise ConfigError(f"usage.{field.name}={value}: a number of tokens cannot be negative")
        if (self.reasoning_tokens or 0) > (self.output_tokens if self.output_tokens is not None else 1 << 62):
            raise ConfigError("reasoning tokens are a part of the output tokens and cannot be more")

    @property
    def tokens(self) -> Amount:
        """All tokens, each counted once: the reasoning is inside the output already."""
        known = (self.input_tokens, self.cached_input_tokens, self.cache_write_tokens, self.output_tokens)
        complete = self.input_tokens is not None and self.output_tokens is not None
        return Amount(float(sum(value or 0 for value in known)), complete)


@dataclass(frozen=True, kw_only=True)
class Price:
    """US dollars per million tokens on the day `as_of`. A price that is None is not offered or not known."""

    model: str
    as_of: str
    input: float
    output: float
    cached_input: float | None = None
    cache_write: float | None = None
    source: str = ""


def load_prices(path: Path) -> tuple[Price, ...]:
    """Read a price table; raise ConfigError with the entry that is malformed."""
    prices = []
    for number, row in enumerate(load_yaml(path)["prices"]):
        try:
            prices.append(Price(**row))
        except TypeError as error:
            raise ConfigError(f"{path}: prices[{number}]: {error}") from error
    return tuple(prices)


def price_for(model: str, prices: Iterable[Price], given: Mapping[str, Any] | None) -> Price | None:
    """The price of `model`: `given` on the command line, else the first entry of the table whose pattern matches."""
    if given:
        return Price(**{"model": model, "as_of": "given with the run", **given})
    return next((price for price in prices if fnmatch.fnmatchcase(model, price.model)), None)


def cost_of(usage: Usage, price: Price | None) -> Amount:
    """What a reply cost in US dollars; a lower bound where a count or a price is unknown.

    Where the API does not tell how much of the input was cached, the input is charged at the lower of both prices.
    """
    if price is None:
        return Amount(0.0, complete=False)
    unsure = usage.cached_input_tokens is None and price.cached_input is not None
    input_price = min(price.input, price.cached_input) if unsure and price.cached_input is not None else price.input
    parts = [
        Amount((usage.input_tokens or 0) * input_price, usage.input_tokens is not None and not unsure),
        _part(usage.cached_input_tokens, price.cached_input),
        _part(usage.cache_write_tokens, price.cache_write),
        Amount((usage.output_tokens or 0) * price.output, usage.output_tokens is not None),
    ]
    amount = total(parts)
    return Amount(amount.value / 1e6, amount.complete)


def _part(tokens: int | None, price: float | None) -> Amount:
    """A part that most APIs do not have: without tokens it costs nothing, without a price it is unknown."""
    if not tokens:
        return Amount()
    return Amount(0.0, complete=False) if price is None else Amount(tokens * price)
