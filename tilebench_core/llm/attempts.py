"""What became of one backend's candidate in one round, and the numbers that follow from its cases."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tilebench_core.llm.status import Status

__all__ = ["Attempt", "CaseResult", "attempt_from_json", "geomean"]


def geomean(values: Iterable[float]) -> float | None:
    """The geometric mean of positive values; None without any. The caller says what was left out."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs)) if logs else None


@dataclass(frozen=True, kw_only=True)
class CaseResult:
    """One case of a candidate. Times in microseconds of device work per call; None where nothing was timed or is known.

    `time_source` is "measured" or "recorded": taken from an earlier campaign that timed the same source.
    """

    dtype: str
    params: Mapping[str, Any]
    kind: str
    outcome: str
    reason: str | None = None
    median_us: float | None = None
    roofline_us: float | None = None
    baseline_us: float | None = None
    config: Mapping[str, Any] | None = None
    launches: int | None = None
    activities: int | None = None
    max_abs_err: float | None = None
    time_source: str | None = None

    @property
    def label(self) -> str:
        """Dtype and parameters as a person reads them."""
        return f"{self.dtype} " + " ".join(f"{name}={value}" for name, value in self.params.items())

    @property
    def share(self) -> float | None:
        """Roofline time over measured time."""
        return self.roofline_us / self.median_us if self.roofline_us and self.median_us else None

    @property
    def speedup(self) -> float | None:
        """The pinned baseline's time over the candidate's."""
        return self.baseline_us / self.median_us if self.baseline_us and self.median_us else None


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One backend's part of a round. `verdict` is the compliance check's, None where there was nothing to check.

    `cases` are those that were planned, in order; one that was not reached has the outcome "NOT_RUN".
    """

    backend: str
    status: Status
    reason: str | None = None
    verdict: str | None = None
    diagnostic: str | None = None
    source_sha256: str | None = None
    cases: tuple[CaseResult, ...] = ()
    seconds: float = 0.0

    @property
    def passed(self) -> int:
        """How many cases passed every check."""
        return sum(case.outcome == "PASSED" for case in self.cases if case.kind != "smoke")

    @property
    def planned(self) -> int:
        """How many cases it is judged by; a smoke case that failed is shown and not counted."""
        return sum(case.kind != "smoke" for case in self.cases)

    def _all(self, values: Sequence[float | None]) -> list[float] | None:
        known = [value for value in values if value is not None]
        return known if self.status.is_clean and known and len(known) == len(self.cases) else None

    @property
    def speedup(self) -> float | None:
        """Geometric mean over the cases of a clean candidate; None where it is not clean or was not timed."""
        values = self._all([case.speedup for case in self.cases])
        return geomean(values) if values else None

    @property
    def efficiency(self) -> float | None:
        """Geometric mean over the cases of the share of the roofline."""
        values = self._all([case.share for case in self.cases])
        return geomean(values) if values else None

    @property
    def lowest_share(self) -> float | None:
        """The smallest share of the roofline over the cases: what freezing is judged by."""
        values = self._all([case.share for case in self.cases])
        return min(values) if values else None

    @property
    def geomean_us(self) -> float | None:
        """Geometric mean of the cases' times."""
        values = self._all([case.median_us for case in self.cases])
        return geomean(values) if values else None

    @property
    def score(self) -> float:
        """What "better" means among clean candidates: faster on the same cases; verified ones without a time are equal."""
        return 1.0 / self.geomean_us if self.geomean_us else 0.0

    def to_json(self) -> dict[str, Any]:
        """As it is archived."""
        values = asdict(self)
        values["status"] = self.status.value
        values["cases"] = [asdict(case) for case in self.cases]
        return values


def attempt_from_json(values: Mapping[str, Any]) -> Attempt:
    """The attempt that was archived."""
    cases = tuple(CaseResult(**case) for case in values["cases"])
    return Attempt(**{**values, "status": Status(values["status"]), "cases": cases})
