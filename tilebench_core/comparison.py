"""Has anything become slower? Two campaigns, series by series.

The ratio of a series is the geometric mean over its cases of (candidate median / baseline median). Its interval comes
from a bootstrap of every case's samples on both sides, and has to clear both the noise floor and a practical threshold.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from statistics import median

from tilebench_core.analysis.bootstrap import Resampled, interval, log_ratios, mean_log
from tilebench_core.analysis.points import case_key, geomean, is_valid
from tilebench_core.analysis.results import Results, load_results
from tilebench_core.campaign import find_campaign
from tilebench_core.errors import ConfigError
from tilebench_core.records import Record

__all__ = ["Comparison", "SeriesComparison", "Verdict", "compare", "compare_campaigns", "compare_command"]

PRACTICAL_THRESHOLD = 0.02
_CONDITIONS = (
    "device",
    "clock",
    "cache",
    "graph",
    "protocol",
    "precision",
    "flops",
    "bytes",
    "operator_config_changed",
)


class Verdict(str, Enum):
    """What a comparison says about a series, or about the suite."""

    FASTER = "FASTER"
    SLOWER = "SLOWER"
    SAME = "SAME"
    INCONCLUSIVE = "INCONCLUSIVE"
    INCOMPARABLE = "INCOMPARABLE"
    MISSING = "MISSING"


@dataclass(frozen=True, kw_only=True)
class SeriesComparison:
    """One series: `ratio` is candidate over baseline time (above 1 is slower), between `low` and `high`.

    `ratios` are those of its cases.
    """

    series: tuple[str, str, str, str, str]
    verdict: Verdict
    cases: int = 0
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    worst: float | None = None
    worst_case: str = ""
    reason: str = ""
    ratios: tuple[float, ...] = ()

    @property
    def name(self) -> str:
        """The series in words."""
        operator, dtype, backend, _, mode = self.series
        return f"{operator} · {dtype} · {backend}{' (tuned)' if mode == 'tuned' else ''}"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two campaigns: every series that the baseline has timed, and the suite. `added` counts series only the candidate has."""

    baseline: str
    candidate: str
    series: tuple[SeriesComparison, ...]
    verdict: Verdict
    ratio: float | None
    threshold: float
    noise_floor: float
    added: int = 0
    notes: tuple[str, ...] = ()

    @property
    def counts(self) -> Mapping[Verdict, int]:
        """Number of series per verdict."""
        return Counter(item.verdict for item in self.series)

    @property
    def agreement(self) -> tuple[float, float, int] | None:
        """By how much a case differs between the two: the median, the 95th percentile, and over how many cases."""
        differences = sorted(abs(ratio - 1) for item in self.series for ratio in item.ratios)
        if not differences:
            return None
        return median(differences), differences[int(0.95 * (len(differences) - 1))], len(differences)

    @property
    def exit_status(self) -> int:
        """0: nothing is slower, missing or incomparable; 1: something is; 2: nothing could be compared at all."""
        if self.verdict is Verdict.INCOMPARABLE:
            return 2
        bad = {Verdict.SLOWER, Verdict.MISSING, Verdict.INCOMPARABLE}
        return 1 if bad & set(self.counts) else 0

    def markdown(self, most: int = 50) -> str:
        """Text fit for a pull request: the suite's verdict, then the series that are not SAME, the worst first."""
        ratio = f", {_change(self.ratio)} in geometric mean" if self.ratio else ""
        lines = [
            f"## TileBench: {self.verdict.value}{ratio}",
            "",
            f"`{self.baseline}` → `{self.candidate}`: "
            + (", ".join(f"{self.counts[v]} {v.value}" for v in Verdict if v in self.counts) or "no series")
            + (f", {self.added} new" if self.added else "")
            + f". A change counts if its 95 % interval clears {self.threshold:.1%} (noise floor {self.noise_floor:.2%}).",
        ]
        lines += [f"- {note}" for note in self.notes]
        if self.agreement:
            middle, high, cases = self.agreement
            lines.append(
                f"- A case differs by {middle:.2%} at the median and {high:.2%} at the 95th percentile ({cases} cases)."
            )
        shown = sorted((s for s in self.series if s.verdict is not Verdict.SAME), key=_urgency)
        if shown:
            lines += ["", "| Verdict | Series | Time | 95 % interval | Cases | Worst case | Reason |"]
            lines += ["|---|---|--:|---|--:|---|---|"]
            lines += [_row(item) for item in shown[:most]]
        if len(shown) > most:
            lines += ["", f"… and {len(shown) - most} more."]
        return "\n".join(lines) + "\n"


def _urgency(item: SeriesComparison) -> tuple[int, float, str]:
    order = [Verdict.MISSING, Verdict.SLOWER, Verdict.INCOMPARABLE, Verdict.INCONCLUSIVE, Verdict.FASTER, Verdict.SAME]
    return order.index(item.verdict), -abs(math.log(item.ratio)) if item.ratio else 0.0, item.name


def _change(ratio: float | None) -> str:
    return "" if ratio is None else f"{(ratio - 1) * 100:+.1f} %"


def _row(item: SeriesComparison) -> str:
    interval = f"{_change(item.low)} … {_change(item.high)}" if item.low is not None else ""
    worst = f"{_change(item.worst)} at {item.worst_case}" if item.worst is not None else ""
    cells = [item.verdict.value, item.name, _change(item.ratio), interval, str(item.cases), worst, item.reason]
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def compare_campaigns(
    baseline: Path,
    candidate: Path,
    *,
    threshold: float = PRACTICAL_THRESHOLD,
    noise_floor: float | None = None,
    common: bool = False,
) -> Comparison:
    """Compare two campaign folders; RequestError if one holds no records."""
    old, new = load_results(baseline), load_results(candidate)
    return compare(old, new, threshold=threshold, noise_floor=noise_floor, common=common)


def compare(
    baseline: Results,
    candidate: Results,
    *,
    threshold: float = PRACTICAL_THRESHOLD,
    noise_floor: float | None = None,
    resamples: int = 1000,
    common: bool = False,
) -> Comparison:
    """Compare two campaigns. `noise_floor` is relative; by default the larger of the two campaigns' own.

    With `common`, cases that the candidate has not recorded are left out instead of MISSING: it is a sample, by intent.
    """
    if not 0 <= threshold < 1:
        raise ConfigError(f"threshold: {threshold!r}; expected a share such as 0.02")
    floor = max(baseline.noise_floor, candidate.noise_floor) if noise_floor is None else noise_floor
    limit = max(floor, threshold)
    driver = _driver_difference(baseline, candidate)
    several = any(len({r.device for r in campaign.records if r.device}) > 1 for campaign in (baseline, candidate))
    old, new = _by_series(baseline, several), _by_series(candidate, several)
    if common:
        kept = {s: {key: r for key, r in records.items() if key in new.get(s, {})} for s, records in old.items()}
        old = {series: records for series, records in kept.items() if records}
    results: list[SeriesComparison] = []
    logs: list[Resampled] = []
    for series, records in old.items():
        item, samples = _compare_series(series, records, new.get(series, {}), driver, limit, resamples)
        results.append(item)
        if samples is not None:
            logs.append(samples)
    return Comparison(
        baseline=baseline.name, candidate=candidate.name, series=tuple(results),
        verdict=_suite_verdict(results, logs, limit),
        ratio=geomean(item.ratio for item in results if item.ratio), threshold=limit, noise_floor=floor,
        added=sum(series not in old for series in new), notes=tuple(_notes(baseline, candidate)),
    )  # fmt: skip


def _by_series(campaign: Results, by_device: bool) -> dict[tuple[str, str, str, str, str], dict[str, Record]]:
    """The grid's records by series (without the provider's version) and case, of all series with a valid record."""
    found: dict[tuple[str, str, str, str, str], dict[str, Record]] = defaultdict(dict)
    for record in campaign.records:
        if record.case_kind == "grid":
            operator, dtype, backend, provider, mode = record.series
            device = record.device or campaign.device
            key = f"{case_key(record)} {device}" if by_device else case_key(record)
            found[operator, dtype, backend, provider.split(" ")[0], mode][key] = record
    return {series: records for series, records in found.items() if any(map(is_valid, records.values()))}


def _driver_difference(baseline: Results, candidate: Results) -> str:
    old, new = baseline.driver, candidate.driver
    return f"driver {old} against {new}" if old != new else ""


def _notes(baseline: Results, candidate: Results) -> list[str]:
    old, new = baseline.versions, candidate.versions
    changed = [f"{n} {old.get(n, '–')} → {new.get(n, '–')}" for n in sorted({*old, *new}) if old.get(n) != new.get(n)]
    notes = [f"Versions that differ: {', '.join(changed)}"] if changed else []
    if not (baseline.noise_floor_is_measured and candidate.noise_floor_is_measured):
        notes.append("The noise floor is assumed: a campaign has not measured its own.")
    return notes


def _difference(old: Record, new: Record) -> str:
    """Why two records may not be compared, or an empty string."""
    for name in _CONDITIONS:
        before, after = getattr(old, name), getattr(new, name)
        if before != after:
            what = "operator config" if name in ("flops", "bytes", "operator_config_changed") else name
            detail = f" ({name})" if what != name else ""
            return f"{what}{detail}: {before} against {after}"
    return ""


def _compare_series(
    series: tuple[str, str, str, str, str],
    old: Mapping[str, Record],
    new: Mapping[str, Record],
    driver: str,
    limit: float,
    resamples: int,
) -> tuple[SeriesComparison, Resampled | None]:
    """The series' verdict, and the bootstrap's log ratios if it could be compared."""
    timed = {key: record for key, record in old.items() if is_valid(record)}
    differences = [_difference(record, new[key]) for key, record in timed.items() if key in new and is_valid(new[key])]
    reason = driver or next((text for text in differences if text), "")
    if reason:
        return SeriesComparison(series=series, verdict=Verdict.INCOMPARABLE, reason=reason), None
    lost = [key for key in timed if key not in new or not is_valid(new[key])]
    pairs = [(record, new[key]) for key, record in timed.items() if key not in lost]
    if not pairs:
        return SeriesComparison(series=series, verdict=Verdict.MISSING, reason=_lost(lost, timed, new)), None
    logs = mean_log([log_ratios(before, after, resamples) for before, after in pairs])
    ratios = [(after.median_us or 0.0) / (before.median_us or 1.0) for before, after in pairs]
    worst = max(range(len(pairs)), key=lambda i: ratios[i])
    low, high = interval(logs)
    item = SeriesComparison(
        series=series, verdict=Verdict.MISSING if lost else _verdict(low, high, limit), cases=len(pairs),
        ratio=geomean(ratios), low=low, high=high, worst=ratios[worst], worst_case=_case_text(pairs[worst][0]),
        reason=_lost(lost, timed, new) if lost else "", ratios=tuple(ratios),
    )  # fmt: skip
    return item, logs


def _case_text(record: Record) -> str:
    return ", ".join(f"{name}={value}" for name, value in record.params.items())


def _lost(lost: Sequence[str], timed: Mapping[str, Record], new: Mapping[str, Record]) -> str:
    key = lost[0]
    end = f"{new[key].outcome.value}: {new[key].reason or 'no latency'}" if key in new else "not recorded"
    return f"{len(lost)} of {len(timed)} cases lost, first {_case_text(timed[key])}: {end}"


def _verdict(low: float, high: float, limit: float) -> Verdict:
    if low > 1 + limit:
        return Verdict.SLOWER
    if high < 1 / (1 + limit):
        return Verdict.FASTER
    inside = low >= 1 / (1 + limit) and high <= 1 + limit
    return Verdict.SAME if inside else Verdict.INCONCLUSIVE


def _suite_verdict(items: Sequence[SeriesComparison], logs: Sequence[Resampled], limit: float) -> Verdict:
    """MISSING if anything is; INCOMPARABLE if nothing could be compared; else from the mean over all series."""
    if any(item.verdict is Verdict.MISSING for item in items):
        return Verdict.MISSING
    if not logs:
        return Verdict.INCOMPARABLE
    return _verdict(*interval(mean_log(logs)), limit)


def compare_command(parser: argparse.ArgumentParser, arguments: list[str]) -> int:
    """`tilebench compare BASELINE CANDIDATE`: print the Markdown, optionally write it, and return the exit status."""
    parser.add_argument("baseline", help="a campaign, by name or folder")
    parser.add_argument("candidate", help="the campaign that is judged against it")
    parser.add_argument("--threshold", type=float, default=PRACTICAL_THRESHOLD, help="a change that matters (0.02)")
    parser.add_argument("--noise-floor", type=float, help="relative; the campaigns' own without it")
    parser.add_argument("--common", action="store_true", help="leave out cases that the candidate has not recorded")
    parser.add_argument("--out", type=Path, help="also write the Markdown to this file")
    parser.add_argument("--results-dir", default="results")
    wanted = parser.parse_args(arguments)
    folders = [find_campaign(name, wanted.results_dir).folder for name in (wanted.baseline, wanted.candidate)]
    found = compare_campaigns(
        *folders, threshold=wanted.threshold, noise_floor=wanted.noise_floor, common=wanted.common
    )
    text = found.markdown()
    print(text, end="")
    if wanted.out:
        wanted.out.write_text(text, encoding="utf-8")
    return found.exit_status
