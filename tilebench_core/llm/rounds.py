"""The rounds of a trajectory, read back from its archive: what prompts, budgets, metrics and reports are made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tilebench_core.llm.archive import Archive
from tilebench_core.llm.attempts import Attempt, attempt_from_json
from tilebench_core.llm.status import End
from tilebench_core.llm.usage import Amount, Usage, total

__all__ = ["Round", "Trajectory", "file_in", "read_trajectory"]


def file_in(number: int, name: str) -> str:
    """The path of a round's file below the trajectory's folder."""
    return f"round_{number:02d}/{name}"


@dataclass(frozen=True, kw_only=True)
class Round:
    """One round, as far as it got. `lost` counts requests that were sent, may have cost, and brought no reply."""

    number: int
    backends: tuple[str, ...]
    attempts: Mapping[str, Attempt] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    usage: Usage | None = None
    cost_usd: Amount = field(default_factory=Amount)
    lost: int = 0
    prompt_bytes: int = 0
    frozen_after: tuple[str, ...] = ()
    complete: bool = False

    @property
    def tokens(self) -> Amount:
        """Tokens of the round; a lower bound where a reply was lost or the API told nothing."""
        known = self.usage.tokens if self.usage is not None else Amount()
        return known + Amount(0.0, complete=self.lost == 0)

    @property
    def money(self) -> Amount:
        """US dollars of the round."""
        return self.cost_usd + Amount(0.0, complete=self.lost == 0)


@dataclass(frozen=True, kw_only=True)
class Trajectory:
    """A trajectory as it stands: its key, its rounds, its end."""

    key: Mapping[str, Any]
    header: Mapping[str, Any]
    rounds: tuple[Round, ...]
    end: End | None
    end_reason: str | None
    seconds: float

    @property
    def tokens(self) -> Amount:
        """All tokens so far."""
        return total(each.tokens for each in self.rounds)

    @property
    def money(self) -> Amount:
        """All US dollars so far."""
        return total(each.money for each in self.rounds)

    def attempts(self, backend: str) -> list[tuple[int, Attempt]]:
        """The attempts of one backend, with their round."""
        return [(r.number, r.attempts[backend]) for r in self.rounds if backend in r.attempts]

    def best(self, backend: str) -> tuple[int, Attempt] | None:
        """The fastest clean attempt of a backend, the earliest among equals: nothing that failed is promoted."""
        clean = [(number, attempt) for number, attempt in self.attempts(backend) if attempt.status.is_clean]
        return max(clean, key=lambda item: (item[1].score, -item[0])) if clean else None

    def source(self, backend: str, number: int) -> str:
        """The text of a candidate."""
        return self.rounds[number].sources[backend]

    @property
    def frozen(self) -> dict[str, int]:
        """The backends that are not asked for again, with the round that froze them."""
        return {backend: r.number for r in self.rounds for backend in r.frozen_after}


def read_trajectory(archive: Archive) -> Trajectory:
    """Read everything back. Only what the journal names counts."""
    header = archive.load("trajectory.json")
    numbers = sorted({entry.round for entry in archive.entries if entry.round is not None})
    last = archive.entries[-1] if archive.entries else None
    end = last if last is not None and last.event == "end" else None  # one that a larger budget undid is history
    return Trajectory(
        key=header["key"],
        header=header,
        rounds=tuple(_read_round(archive, number) for number in numbers),
        end=End(end.data["end"]) if end else None,
        end_reason=end.data["reason"] if end else None,
        seconds=sum(entry.data.get("seconds", 0.0) for entry in archive.entries),
    )


def _read_round(archive: Archive, number: int) -> Round:
    mine = [entry for entry in archive.entries if entry.round == number]
    request = archive.find("prompt", number)
    assert request is not None
    usage_entry, candidate = archive.find("usage", number), archive.find("candidate", number)
    evaluation, feedback = archive.find("evaluation", number), archive.find("feedback", number)
    usage, cost = None, Amount()
    if usage_entry is not None:
        kept = archive.load(file_in(number, "usage.json"))
        usage, cost = Usage(**kept["usage"]), Amount(kept["cost_usd"], kept["cost_complete"])
    sources = {}
    if candidate is not None:
        for backend, about in archive.load(file_in(number, "candidate.json")).items():
            if about["file"]:
                sources[backend] = archive.read(file_in(number, about["file"]))
    attempts = {}
    if evaluation is not None:
        kept = archive.load(file_in(number, "evaluation.json"))
        attempts = {backend: attempt_from_json(values) for backend, values in kept["attempts"].items()}
    failed = sum(entry.event == "attempt" and entry.data.get("may_cost", False) for entry in mine)
    interrupted = sum(entry.event == "lost" for entry in mine)
    return Round(
        number=number,
        backends=tuple(request.data["backends"]),
        attempts=attempts,
        sources=sources,
        usage=usage,
        cost_usd=cost,
        lost=failed + interrupted,
        prompt_bytes=request.data["bytes"],
        frozen_after=tuple(feedback.data["frozen"]) if feedback else (),
        complete=feedback is not None,
    )
