"""Two campaigns: what became slower, what was lost, and what must not be compared."""

from __future__ import annotations

import random
import statistics
from dataclasses import replace
from pathlib import Path

import pytest
from synthetic import Shape, synthetic_records, write_campaign

from tilebench_core.analysis import Results
from tilebench_core.analysis.bootstrap import interval, log_ratios
from tilebench_core.comparison import Verdict, compare, compare_campaigns
from tilebench_core.errors import ConfigError
from tilebench_core.outcomes import Outcome

SHAPE = Shape(operators=3, dtypes=("fp16",), cases=4, samples=30, modes=("default",), trouble=False)
ENVIRONMENT = {"driver": "570.1", "noise_floor": 0.005, "device": "NVIDIA H200"}


def campaign(records, name="b", **environment):
    return Results(name=name, folder=Path(name), records=tuple(records), environment={**ENVIRONMENT, **environment})


def verdicts(comparison):
    return {item.name: item.verdict for item in comparison.series}


def test_two_runs_of_the_same_kernels_are_the_same():
    same = compare(campaign(synthetic_records(SHAPE), "a"), campaign(synthetic_records(replace(SHAPE, seed=9))))
    assert set(same.counts) == {Verdict.SAME}
    assert same.verdict is Verdict.SAME
    assert same.exit_status == 0
    assert "SAME" in same.markdown()


def test_a_campaign_equals_itself_exactly():
    one = campaign(synthetic_records(SHAPE))
    assert {item.ratio for item in compare(one, one).series} == {1.0}


def test_a_kernel_made_five_percent_slower_is_caught():
    slower = synthetic_records(replace(SHAPE, seed=9, slower=("reduction_01", "triton", 1.05)))
    found = compare(campaign(synthetic_records(SHAPE), "a"), campaign(slower))
    assert verdicts(found).pop("reduction_01 · fp16 · triton") is Verdict.SLOWER
    assert found.counts == {Verdict.SLOWER: 1, Verdict.SAME: 8}
    assert found.exit_status == 1
    (item,) = [item for item in found.series if item.verdict is Verdict.SLOWER]
    assert item.low < item.ratio < item.high
    assert item.ratio == pytest.approx(1.05, abs=0.003)
    assert "| SLOWER | reduction_01 · fp16 · triton | +5." in found.markdown()


def test_a_faster_kernel_is_praised_and_passes():
    faster = synthetic_records(replace(SHAPE, slower=("reduction_01", "triton", 0.9)))
    found = compare(campaign(synthetic_records(SHAPE), "a"), campaign(faster))
    assert verdicts(found)["reduction_01 · fp16 · triton"] is Verdict.FASTER
    assert found.exit_status == 0


def test_a_change_below_the_noise_floor_is_no_change():
    slower = synthetic_records(replace(SHAPE, slower=("reduction_01", "triton", 1.05)))
    found = compare(campaign(synthetic_records(SHAPE), "a"), campaign(slower, noise_floor=0.08))
    assert set(found.counts) == {Verdict.SAME}


def test_noisy_samples_around_the_threshold_are_inconclusive():
    rng = random.Random(0)

    def noisy(record, factor):
        samples = tuple(rng.gauss(100 * factor, 15) for _ in range(20))
        return replace(record, samples_us=samples, median_us=statistics.median(samples))

    first = synthetic_records(SHAPE)[:1]
    found = compare(campaign([noisy(first[0], 1.0)], "a"), campaign([noisy(first[0], 1.02)]))
    assert found.series[0].verdict is Verdict.INCONCLUSIVE
    assert found.exit_status == 0


@pytest.mark.parametrize("how", ["vanished", "failed"])
def test_a_lost_case_fails_the_comparison(how):
    records = synthetic_records(SHAPE)
    if how == "vanished":
        after = records[1:]
    else:
        lost = replace(records[0], outcome=Outcome.WRONG, reason="values | differ", median_us=None, samples_us=None)
        after = [lost, *records[1:]]
    found = compare(campaign(records, "a"), campaign(after))
    assert found.series[0].verdict is Verdict.MISSING
    assert found.verdict is Verdict.MISSING
    assert found.exit_status == 1
    assert ("not recorded" if how == "vanished" else r"WRONG: values \| differ") in found.markdown()


@pytest.mark.parametrize(
    "change",
    [
        {"device": "NVIDIA A100"}, {"clock": "events"}, {"cache": "warm"}, {"graph": False}, {"protocol": "adaptive"},
        {"precision": "tf32"}, {"flops": 1.0}, {"operator_config_changed": True},
    ],
)  # fmt: skip
def test_another_gpu_clock_protocol_or_operator_config_is_incomparable(change):
    records = synthetic_records(SHAPE)
    found = compare(campaign(records, "a"), campaign([replace(record, **change) for record in records]))
    assert set(found.counts) == {Verdict.INCOMPARABLE}
    assert found.exit_status == 2


def test_another_driver_is_incomparable():
    records = synthetic_records(SHAPE)
    found = compare(campaign(records, "a"), campaign(records, driver="580.2"))
    assert found.series[0].reason == "driver 570.1 against 580.2"
    assert found.exit_status == 2


def test_what_the_baseline_never_timed_cannot_be_lost_and_new_series_are_counted():
    records = synthetic_records(SHAPE)
    old = [record for record in records if record.backend != "cutile"]
    found = compare(campaign(old, "a"), campaign(records))
    assert found.added == 3
    assert found.exit_status == 0
    assert "3 new" in found.markdown()


def test_two_gpus_in_one_campaign_are_compared_each_with_itself():
    both = synthetic_records(SHAPE) + synthetic_records(replace(SHAPE, device="NVIDIA A100", seed=2))
    assert set(compare(campaign(both, "a"), campaign(both)).counts) == {Verdict.SAME}
    other = synthetic_records(replace(SHAPE, device="NVIDIA A100", seed=2, slower=("reduction_01", "triton", 1.3)))
    for after in (synthetic_records(SHAPE) + other, other + synthetic_records(SHAPE)):
        found = compare(campaign(both, "a"), campaign(after))
        assert found.counts[Verdict.SAME] == 8  # the one that is not is slower on one of two GPUs
        assert verdicts(found)["reduction_01 · fp16 · triton"] is Verdict.SLOWER
    gone = compare(campaign(both, "a"), campaign(synthetic_records(SHAPE)))
    assert set(gone.counts) == {Verdict.MISSING}
    assert gone.exit_status == 1


def test_the_command_tells_by_its_exit_status(tmp_path: Path, capsys):
    from tilebench_core import cli

    before = write_campaign(tmp_path / "before", synthetic_records(SHAPE))
    slower = synthetic_records(replace(SHAPE, slower=("reduction_01", "triton", 1.05)))
    after = write_campaign(tmp_path / "after", slower)
    other = write_campaign(tmp_path / "other", synthetic_records(replace(SHAPE, device="NVIDIA A100")))
    lost = write_campaign(tmp_path / "lost", synthetic_records(SHAPE)[1:])
    ends = [cli.main(["compare", str(before), str(after)]) for after in (before, after, lost, other)]
    assert ends == [0, 1, 1, 2]
    assert capsys.readouterr().out.count("## TileBench: ") == 4


def test_the_direct_bootstrap_of_a_median_agrees_with_resampling():
    rng = random.Random(1)
    record = synthetic_records(SHAPE)[0]
    old = tuple(rng.lognormvariate(3, 0.1) for _ in range(31))
    new = tuple(rng.lognormvariate(3.02, 0.1) for _ in range(40))
    low, high = interval(log_ratios(replace(record, samples_us=old), replace(record, samples_us=new), 20_000))
    ratios = sorted(
        statistics.median(rng.choices(new, k=len(new))) / statistics.median(rng.choices(old, k=len(old)))
        for _ in range(5000)
    )
    assert low == pytest.approx(ratios[125], rel=0.005)
    assert high == pytest.approx(ratios[4875], rel=0.005)


def test_folders_are_compared_and_nonsense_is_refused(tmp_path: Path):
    first = write_campaign(tmp_path / "a", synthetic_records(SHAPE))
    assert compare_campaigns(first, first).verdict is Verdict.SAME
    with pytest.raises(ConfigError, match="expected a share"):
        compare_campaigns(first, first, threshold=2)


def test_agreement_is_told_by_case():
    old = synthetic_records(SHAPE)
    new = [
        replace(record, median_us=(record.median_us or 0) * (1.03 if record.case_index == 0 else 1.01))
        for record in old
    ]
    middle, high, cases = compare(campaign(old, "a"), campaign(new)).agreement
    assert (middle, high, cases) == (
        pytest.approx(0.01),
        pytest.approx(0.03),
        sum(r.median_us is not None for r in old),
    )
    assert (
        "differs by 1.00% at the median and 3.00% at the 95th percentile"
        in compare(campaign(old), campaign(new)).markdown()
    )


def test_a_sample_is_compared_over_what_it_has_only_when_that_is_asked_for():
    old = synthetic_records(SHAPE)
    sample = campaign([record for record in old if record.case_index < 2 and record.backend != "torch"])
    assert set(compare(campaign(old, "a"), sample).counts) == {Verdict.MISSING}
    found = compare(campaign(old, "a"), sample, common=True)
    assert set(found.counts) == {Verdict.SAME}
    assert {item.cases for item in found.series} == {2}
    assert all("torch" not in item.name for item in found.series)
