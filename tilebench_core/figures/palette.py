"""Colours that the colour-blind can tell apart (Okabe and Ito, 2008), the same for a backend in every figure."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass

from tilebench_core.analysis.points import Contestant
from tilebench_core.analysis.standings import BASELINE

__all__ = ["Look", "looks"]

_COLOURS = ("#56B4E9", "#D55E00", "#009E73", "#0072B2", "#CC79A7", "#E69F00", "#8C510A")
_MARKERS = ("v", "s", "^", "o", "D", "P", "X")
_BASELINES = {BASELINE.backend: ("#222222", "x"), f"{BASELINE.backend}_compile": ("#7A7A7A", "+")}


@dataclass(frozen=True)
class Look:
    """How a contestant is drawn: its tuned line is solid and filled, its default line dashed and hollow."""

    colour: str
    marker: str
    solid: bool


def _slots(backends: Iterable[str]) -> dict[str, tuple[str, str]]:
    """A colour and marker per backend: by a digest of its name, and the next free one where two names meet."""
    slots = dict(_BASELINES)
    taken: set[int] = set()
    for backend in sorted(set(backends) - set(_BASELINES)):
        wanted = zlib.crc32(f"{backend}\x02".encode()) % len(_COLOURS)  # this salt keeps today's backends apart
        free = [(wanted + step) % len(_COLOURS) for step in range(len(_COLOURS))]
        slot = next((slot for slot in free if slot not in taken), wanted)
        taken.add(slot)
        slots[backend] = (_COLOURS[slot], _MARKERS[slot])
    return slots


def looks(contestants: Iterable[Contestant]) -> dict[Contestant, Look]:
    """The look of each contestant; a backend without a tuned mode is drawn solid."""
    contestants = list(contestants)
    slots = _slots(who.backend for who in contestants)
    tuned = {who.backend for who in contestants if who.mode == "tuned"}
    return {
        who: Look(*slots[who.backend], solid=who.mode == "tuned" or who.backend not in tuned) for who in contestants
    }
