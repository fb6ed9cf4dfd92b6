"""Aggregates against an independent computation, and the rules of who may be compared with whom."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from synthetic import GPU, Shape, old_line, operator_name, synthetic_records, troubled_records, write_campaign

from tilebench_core.analysis import Contestant, Peaks, duels, geomean, load_results, mean_of, ratio, standings, view_of
from tilebench_core.analysis.accounting import accounts, overhead_s
from tilebench_core.analysis.fastest import count_leads, leads
from tilebench_core.analysis.shortfalls import shortfalls
from tilebench_core.errors import RequestError
from tilebench_core.outcomes import Outcome
from tilebench_core.report.frames import records_columns, write_csv

CONDITION = (GPU, "cupti", "cold")
PEAKS = Peaks(bandwidth_gbps=4000.0, launch_floor_us={"torch": 0.6, "triton": 0.6, "cutile": 0.7})


@pytest.fixture(scope="module")
def records():
    """Failures, ties, missing backends, zero work, an impossible latency, two GPUs."""
    found = troubled_records()
    first = found[0]
    found.append(replace(first, trial_id="zero", params={"rows": 0, "cols": 0}, case_index=99, median_us=0.0))
    return found


@pytest.fixture(scope="module")
def frame(records, tmp_path_factory) -> pd.DataFrame:
    """The valid records of one GPU, read back from the CSV: all that the independent computation uses."""
    path = tmp_path_factory.mktemp("csv") / "records.csv"
    write_csv(records_columns(view_of(records), records), path)
    table = pd.read_csv(path)
    table = table[(table.device == GPU) & (table.outcome == "PASSED") & (table.median_us > 0)].copy()
    table["who"] = table.backend + table["mode"].map({"default": "", "tuned": " (tuned)"})
    table["case"] = table.operator + table.dtype + table.params
    return table


@pytest.fixture(scope="module")
def rows(records):
    view = view_of(records).under(*CONDITION)
    return {row.contestant.label: row for row in standings(view, view.contestants, PEAKS)}


def gmean(values) -> float:
    return float(np.exp(np.log(values).mean()))


def by_operator(values: pd.Series, operators: pd.Series) -> float:
    return gmean(values.groupby(operators).apply(gmean))


def paired(frame: pd.DataFrame, slow: str, fast: str) -> pd.DataFrame:
    keys = ["operator", "dtype", "case", "precision", "graph"]
    left, right = frame[frame.who == slow], frame[frame.who == fast]
    both = left.merge(right, on=keys, suffixes=("_slow", "_fast"))
    return both.assign(ratio=both.median_us_slow / both.median_us_fast)


def test_speedups_agree_with_pandas(frame, rows):
    for who, row in rows.items():
        both = paired(frame, "torch", who)
        assert row.speedup.cases == len(both)
        assert row.speedup.value == pytest.approx(by_operator(both.ratio, both.operator), rel=1e-6)


def test_speedups_over_common_cases_agree_with_pandas(frame, rows):
    everybody = set(frame.who)
    valid = frame.groupby("case").agg(
        who=("who", set), precisions=("precision", "nunique"), graphs=("graph", "nunique")
    )
    common = valid[(valid.who == everybody) & (valid.precisions == 1) & (valid.graphs == 1)].index
    assert len(common) == 20
    for who, row in rows.items():
        both = paired(frame[frame.case.isin(common)], "torch", who)
        assert row.speedup_common.cases == len(common)
        assert row.speedup_common.value == pytest.approx(by_operator(both.ratio, both.operator), rel=1e-6)


def test_tuning_gain_utilisation_and_attainable_agree_with_pandas(frame, rows):
    both = paired(frame, "triton", "triton (tuned)")
    assert rows["triton (tuned)"].tuning_gain.value == pytest.approx(by_operator(both.ratio, both.operator), rel=1e-6)
    assert rows["triton"].tuning_gain.value is None
    for who in ("torch", "triton", "cutile (tuned)"):
        mine = frame[frame.who == who]
        used = mine.roofline_us / mine.median_us
        assert rows[who].utilisation.value == pytest.approx(by_operator(used, mine.operator), rel=1e-6)
        means = used.groupby(mine.operator).apply(gmean)
        assert rows[who].good_share == pytest.approx(float((means >= 0.8).mean()))
        floor = PEAKS.launch_floor_us[who.split()[0]]
        reachable = (mine.roofline_us + floor) / mine.median_us
        assert rows[who].attainable.value == pytest.approx(by_operator(reachable, mine.operator), rel=1e-6)
        last = mine.sort_values("bytes").groupby(["operator", "dtype"]).tail(1)
        largest = by_operator(last.roofline_us / last.median_us, last.operator)
        assert rows[who].utilisation_largest.value == pytest.approx(largest, rel=1e-6)
    assert rows["tilelang"].attainable.value is None  # its launch floor is unknown


def test_wins_ties_and_losses_agree_with_pandas(frame, records):
    view = view_of(records).under(*CONDITION)
    matrix = duels(view, view.contestants, 0.005)
    for (first, second), duel in matrix.items():
        faster = paired(frame, second.label, first.label).ratio
        wins, losses = int((faster > 1.005).sum()), int((faster < 1 / 1.005).sum())
        assert (duel.wins, duel.losses, duel.cases) == (wins, losses, len(faster))
        assert matrix[second, first].ties == duel.ties
    assert matrix[Contestant("cutile"), Contestant("torch")].ties == 12  # the operator on which all are equal


def test_pass_rates_leave_out_what_was_not_applicable(rows):
    assert (rows["tilelang"].passed, rows["tilelang"].applicable) == (36, 36)
    assert (rows["cutile"].passed, rows["cutile"].applicable) == (46, 48)
    assert rows["triton"].suspicious == 2
    assert rows["triton"].pass_rate == 1


def test_no_ratio_crosses_precision_graph_clock_cache_or_device():
    torch = synthetic_records(Shape(trouble=False))[0]
    other = replace(torch, backend="triton", median_us=torch.median_us / 2)
    assert ratio(torch, other) == pytest.approx(2)
    for change in (
        {"precision": "tf32"}, {"graph": False}, {"clock": "events"}, {"cache": "warm"}, {"device": "B200"},
        {"outcome": Outcome.SUSPICIOUS, "reason": "too fast"}, {"median_us": None}, {"median_us": 0.0},
        {"median_us": math.inf}, {"interpreted": True},
    ):  # fmt: skip
        assert ratio(torch, replace(other, **change)) is None
    assert ratio(None, other) is None


def test_two_gpus_clocks_and_caches_are_never_averaged_together():
    one = synthetic_records(Shape(operators=1))
    records = [
        *one, *synthetic_records(Shape(operators=1, device="NVIDIA A100")),
        *(replace(r, trial_id=r.trial_id + "warm", cache="warm") for r in one),
    ]  # fmt: skip
    view = view_of(records)
    assert view.conditions == (("NVIDIA A100", "cupti", "cold"), (GPU, "cupti", "cold"), (GPU, "cupti", "warm"))
    assert all(len(view.under(*condition).points) == 12 for condition in view.conditions)


def test_two_providers_of_one_backend_are_two_contestants():
    one = [r for r in synthetic_records(Shape(operators=1, trouble=False)) if r.backend == "triton"]
    view = view_of([*one, *(replace(r, trial_id=r.trial_id + "b", provider="other 2.0") for r in one)])
    labels = {who.label for who in view.contestants}
    assert labels == {
        "triton [other 2.0]", "triton [other 2.0] (tuned)",
        "triton [tilebench-triton 0.1.0]", "triton [tilebench-triton 0.1.0] (tuned)",
    }  # fmt: skip


def test_every_operator_weighs_the_same():
    mean = mean_of([("a", 4.0), ("a", 4.0), ("a", 4.0), ("b", 1.0), ("c", None), ("d", 0.0), ("e", math.inf)])
    assert mean.value == pytest.approx(2.0)
    assert (mean.cases, mean.operators) == (4, 2)
    assert mean_of([]).value is None
    assert geomean([]) is None


def test_an_older_schema_and_a_torn_line_are_read(tmp_path: Path):
    records = synthetic_records(Shape(operators=1))
    folder = write_campaign(tmp_path / "c", records)
    lines = [old_line(record) for record in records]
    (folder / "records.jsonl").write_text("\n".join(lines) + '\n{"schema_version": 1, "oper')
    results = load_results(folder)
    assert len(results.records) == len(records)
    assert len(results.torn) == 1
    assert results.noise_floor == 0.005
    assert results.peaks.floor_us("triton") == 0.6
    assert results.device == GPU
    view = view_of(results.records)
    assert standings(view, [Contestant("triton")], results.peaks)[0].speedup.value == pytest.approx(1 / 0.85, rel=0.02)


def test_a_campaign_without_an_environment_assumes_a_noise_floor_and_says_so(tmp_path: Path):
    folder = write_campaign(tmp_path / "c", synthetic_records(Shape(operators=1)))
    (folder / "environment.json").unlink()
    results = load_results(folder)
    assert not results.noise_floor_is_measured
    assert results.peaks.floor_us("triton") is None
    with pytest.raises(RequestError, match="expected the records of a campaign"):
        load_results(tmp_path / "nowhere")


def test_an_operator_without_a_common_case_is_in_no_common_mean(records, rows):
    view = view_of(records).under(*CONDITION)
    assert operator_name(1) in {point.operator for point in view.points}
    assert operator_name(1) not in dict(rows["torch"].speedup_common.by_operator)  # one backend has no kernel for it


def test_a_backend_that_was_run_on_few_cases_leaves_the_common_cases_to_the_others(records, rows):
    def standing(sample):
        view = view_of([*records, *sample]).under(*CONDITION)
        return {row.contestant.label: row for row in standings(view, view.contestants, PEAKS)}

    mine = [replace(r, trial_id=f"x{r.trial_id}", backend="compiled") for r in records if r.backend == "torch"]
    few = standing(mine[:3])
    assert few["triton"].speedup_common == rows["triton"].speedup_common
    assert few["compiled"].speedup_common.value is None
    assert few["compiled"].speedup.value == pytest.approx(1.0)
    failed = [replace(r, outcome=Outcome.WRONG, reason="wrong", median_us=None, samples_us=None) for r in mine[3:]]
    assert standing([*mine[:3], *failed])["triton"].speedup_common.cases <= 3  # tried and failed is no excuse


def test_utilisation_of_the_datasheet_agrees_with_pandas(frame, records):
    """All is bound by memory or by a peak; both are held against the datasheet's rate."""
    printed = Peaks(bandwidth_gbps=5000.0, matrix_tflops={"fp16": 900.0, "fp32": 900.0}, source="datasheet")
    measured = {"fp16": 600.0, "fp32": 600.0}
    peaks = Peaks(bandwidth_gbps=4000.0, matrix_tflops=measured, source="measured", datasheet=printed)
    view = view_of(records).under(*CONDITION)
    rows = {row.contestant.label: row for row in standings(view, view.contestants, peaks)}
    mine = frame[frame.who == "triton"]
    limit = np.maximum(mine.bytes / 5000 / 1e3, mine.flops.where(mine.category == "matmul", 0) / 900 / 1e6)
    expected = by_operator(limit / mine.median_us, mine.operator)
    assert rows["triton"].utilisation_datasheet.value == pytest.approx(expected, rel=1e-4)
    assert rows["triton"].utilisation_datasheet.value < rows["triton"].utilisation.value
    view_without = standings(view, view.contestants, PEAKS)
    assert all(row.utilisation_datasheet.value is None for row in view_without)


def test_infinite_and_absent_ratios_change_no_mean(records):
    """A latency of nothing would make an infinite speedup: the aggregates are those without the record."""
    view = view_of(records).under(*CONDITION)
    first = next(r for r in records if r.backend == "triton" and r.outcome is Outcome.PASSED and r.device == GPU)
    bad = [replace(first, median_us=value, trial_id=f"bad{value}", params={"rows": 7}) for value in (0.0, math.inf)]
    again = view_of([*records, *bad]).under(*CONDITION)
    for before, after in zip(
        standings(view, view.contestants, PEAKS), standings(again, again.contestants, PEAKS), strict=True
    ):
        assert (after.speedup, after.utilisation) == (before.speedup, before.utilisation)


def test_an_older_schema_has_the_same_aggregates(records, tmp_path: Path):
    """All that a file may hold at once, written as version 0: failures, ties, two GPUs, zero work."""
    folder = write_campaign(tmp_path / "old", [])
    (folder / "records.jsonl").write_text("".join(old_line(record) + "\n" for record in records))
    old, new = (view_of(found).under(*CONDITION) for found in (load_results(folder).records, records))
    for before, after in zip(
        standings(old, old.contestants, PEAKS), standings(new, new.contestants, PEAKS), strict=True
    ):
        assert before.speedup.value == pytest.approx(after.speedup.value, rel=1e-9)
        assert before.speedup_common == after.speedup_common
        assert before.utilisation == after.utilisation


def one_timed(**changes):
    record = next(r for r in synthetic_records(Shape(operators=1, trouble=False)) if r.backend == "triton")
    return replace(record, **changes)


def test_overhead_is_what_neither_compiled_nor_tuned_nor_worked_on_the_device():
    timed = one_timed(seconds={"compile": 5.0, "tune": 9.0, "verify": 0.25, "time": 0.5}, device_s=0.125)
    untold = one_timed(seconds={"time": 1.0}, device_s=None)
    assert overhead_s(timed) == 0.625
    assert overhead_s(untold) is None
    (account,) = accounts([timed, untold])
    assert (account.trials, account.overhead_s, account.device_s) == (2, 0.625, 0.125)
    assert account.steps == {"compile": 2.5, "tune": 4.5, "verify": 0.125, "time": 0.75}


def test_a_shortfall_is_an_operator_below_half_of_what_its_launch_floor_allows():
    slow = [
        one_timed(trial_id=f"s{i}", median_us=40.0, roofline_us=9.0, case_index=i, params={"n": i}) for i in range(2)
    ]
    fast = [replace(r, trial_id=r.trial_id + "f", operator="other", median_us=12.0) for r in slow]
    view = view_of([*slow, *fast])
    (found,) = shortfalls(view, view.contestants, Peaks(launch_floor_us={"triton": 1.0}))
    assert (found.operator, found.attainable, found.attainable_largest) == (
        slow[0].operator, pytest.approx(0.25), pytest.approx(0.25),
    )  # fmt: skip


def test_the_fastest_at_the_largest_case_is_named_with_its_lead_over_the_better_pytorch():
    times = {"torch": 20.0, "torch_compile": 12.0, "triton": 10.0, "cutile": 11.0}
    found = [
        one_timed(
            trial_id=f"{backend}{n}", backend=backend, median_us=time_us * n, roofline_us=9.0 * n, bytes=1e6 * n,
            case_index=n, params={"fixed": 1, "n": n},
        )
        for backend, time_us in times.items()
        for n in (1, 2)
    ]  # fmt: skip
    slower = [replace(r, trial_id=r.trial_id + "s", operator="other") for r in found if r.backend != "triton"]
    slower = [replace(r, median_us=40.0) if r.backend == "cutile" else r for r in slower]
    other, lead = sorted(leads(view_of([*found, *slower])), key=lambda lead: lead.operator != "other")
    assert lead.params == {"n": 2}
    assert (lead.fastest, lead.kernel, lead.pytorch) == (
        Contestant("triton"), Contestant("triton"), Contestant("torch_compile"),
    )  # fmt: skip
    assert lead.over_pytorch == pytest.approx(1.2)
    assert lead.utilisation == pytest.approx(0.9)
    assert (other.fastest, other.over_pytorch) == (Contestant("torch_compile"), pytest.approx(24 / 40))
    counts = count_leads([other, lead])
    assert (counts.compared, counts.close, counts.rated, counts.good) == (2, 1, 2, 1)
