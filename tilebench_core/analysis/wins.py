"""Who beats whom, case by case; a difference within the noise floor is a tie."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tilebench_core.analysis.points import Contestant, View, valid_ratio

__all__ = ["Duel", "duels"]


@dataclass(frozen=True)
class Duel:
    """How `first` fared against `second` over the cases that are valid for both and may be put in a ratio."""

    first: Contestant
    second: Contestant
    wins: int
    ties: int
    losses: int

    @property
    def cases(self) -> int:
        """The number of common cases."""
        return self.wins + self.ties + self.losses


def duels(
    view: View, contestants: Sequence[Contestant], noise_floor: float
) -> dict[tuple[Contestant, Contestant], Duel]:
    """Every ordered pair of `contestants`, over a view under one condition."""
    limit = math.log1p(noise_floor)
    found = {}
    for index, first in enumerate(contestants):
        for second in contestants[index + 1 :]:
            counts = [0, 0, 0]
            for point in view.points:
                faster = valid_ratio(point.valid.get(second), point.valid.get(first))
                if faster is not None:
                    log = math.log(faster)
                    counts[0 if log > limit else 2 if log < -limit else 1] += 1
            wins, ties, losses = counts
            found[first, second] = Duel(first, second, wins, ties, losses)
            found[second, first] = Duel(second, first, losses, ties, wins)
    return found
