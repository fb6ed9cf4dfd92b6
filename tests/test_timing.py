"""Timing: rounds in turns, statistics that mark and never delete, and a named reason for stopping."""

from __future__ import annotations

import ctypes
import gc
import random
import weakref
from collections import Counter

import numpy as np
import pytest

from tilebench_core.errors import ConfigError, RequestError
from tilebench_core.timing import (
    Clock,
    ClockError,
    Entry,
    Sample,
    TimingSettings,
    activities,
    clock_named,
    summarise,
    time_entries,
)
from tilebench_core.timing import rounds as rounds_module
from tilebench_core.timing.cpu import CpuClock
from tilebench_core.timing.cupti import busy_and_span
from tilebench_core.timing.rounds import round_order
from tilebench_core.timing.statistics import median_interval


class FakeClock(Clock):
    """Yields the times it was given, entry by entry, and remembers the order of everything."""

    name = "fake"

    def __init__(self, *times, log=None):
        self.times, self.log = [iter(values) for values in times], [] if log is None else log

    def measure(self, launches, order, before):
        samples = []
        for entry in order:
            before()
            launches[entry]()
            samples.append(Sample(entry, next(self.times[entry])))
        return samples


class MeanClock(FakeClock):
    means_only = True

    def measure(self, launches, order, before):
        return [Sample(entry, 1.0) for entry in dict.fromkeys(order)]


def entries_of(log, *names):
    return [
        Entry(name, lambda name=name: log.append(name), lambda name=name: log.append(f"warm {name}")) for name in names
    ]


def timed(clock, *names, before=lambda: None, log=None, **settings):
    return time_entries(entries_of([] if log is None else log, *names), TimingSettings(**settings), clock, before)


def forever(value):
    while True:
        yield value


@pytest.mark.parametrize(
    ("intervals", "busy", "span"),
    [
        ([(0, 10)], 10, 10),
        ([(0, 10), (20, 30)], 20, 30),
        ([(20, 30), (0, 10)], 20, 30),
        ([(0, 10), (5, 15)], 15, 15),
        ([(0, 100), (10, 20), (30, 40)], 100, 100),
        ([(0, 10), (0, 10)], 10, 10),
        ([(0, 10), (10, 20)], 20, 20),
        ([(5, 5)], 0, 0),
        ([(0, 4), (2, 6), (8, 9), (8, 12), (20, 21)], 6 + 4 + 1, 21),
    ],
)
def test_busy_is_the_union_of_activities_and_span_from_first_to_last(intervals, busy, span):
    assert busy_and_span(intervals) == (busy, span)


def test_busy_and_span_agree_with_counting_every_nanosecond():
    dice = random.Random(4)
    for _ in range(200):
        starts = [dice.randrange(60) for _ in range(dice.randrange(1, 12))]
        intervals = [(start, start + dice.randrange(20)) for start in starts]
        covered = {tick for start, end in intervals for tick in range(start, end)}
        span = max(end for _, end in intervals) - min(starts)
        assert busy_and_span(intervals) == (len(covered), span)


def test_backends_take_turns_forward_then_backward():
    assert round_order([0, 1, 2], 3) == [0, 1, 2, 2, 1, 0, 0, 1, 2]
    assert round_order([0, 2], 2, first_round=1) == [2, 0, 0, 2]


def test_a_fixed_protocol_takes_exactly_its_samples_after_its_warm_up():
    log = []
    timings = timed(FakeClock(forever(1.0), forever(2.0)), "a", "b", log=log, protocol="fixed", warmup=2, repeat=5)
    assert log[:4] == ["warm a", "warm a", "warm b", "warm b"]
    assert Counter(log[4:]) == {"a": 5, "b": 5}
    assert log[4:8] == ["a", "b", "b", "a"]
    assert [[sample.busy_us for sample in timing.samples] for timing in timings] == [[1.0] * 5, [2.0] * 5]
    assert [timing.stop_reason for timing in timings] == ["5 samples", "5 samples"]


def test_the_cache_is_evicted_before_every_launch_also_of_the_warm_up():
    log = []
    timed(
        FakeClock(forever(1.0)), "a", log=log, before=lambda: log.append("flush"), protocol="fixed", warmup=1, repeat=3
    )
    assert log == ["flush", "warm a"] + ["flush", "a"] * 3


def test_adaptive_stops_as_soon_as_the_median_is_known_and_says_so():
    timing = timed(FakeClock(forever(1.0)), "a", protocol="adaptive", min_samples=10, repeat=400, precision=0.005)[0]
    assert len(timing.samples) == 10
    assert timing.stop_reason == "median within 0.50%"


def test_adaptive_goes_on_with_the_one_that_is_not_known_yet():
    dice = random.Random(1)
    noisy = (dice.uniform(1, 2) for _ in range(10_000))
    steady, restless = timed(FakeClock(forever(1.0), noisy), "a", "b", protocol="adaptive", repeat=60)
    assert len(steady.samples) == 10
    assert len(restless.samples) == 60
    assert restless.stop_reason == "60 samples"


def test_adaptive_never_takes_more_than_repeat_nor_less_than_min_samples():
    timing = timed(FakeClock(forever(1.0)), "a", protocol="adaptive", min_samples=25, repeat=27)[0]
    assert 25 <= len(timing.samples) <= 27
    timing = timed(FakeClock(forever(1.0)), "a", protocol="adaptive", min_samples=10, repeat=4)[0]
    assert (len(timing.samples), timing.stop_reason) == (4, "4 samples")


def test_adaptive_gives_up_at_its_time_limit_and_says_so(monkeypatch):
    now = iter(range(1000))
    monkeypatch.setattr(rounds_module.time, "monotonic", lambda: float(next(now)))
    dice = random.Random(2)
    noisy = (dice.uniform(1, 3) for _ in range(10_000))
    timing = timed(FakeClock(noisy), "a", protocol="adaptive", repeat=10_000, time_limit_s=3.0)[0]
    assert timing.stop_reason == "time limit of 3.0 s"
    assert len(timing.samples) == 30


def test_a_clock_of_means_takes_all_rounds_at_once_and_one_sample_each():
    timings = timed(MeanClock(), "a", "b", protocol="adaptive", repeat=50)
    assert [len(timing.samples) for timing in timings] == [1, 1]
    assert [timing.stop_reason for timing in timings] == ["50 samples", "50 samples"]


def test_statistics_of_known_samples():
    found = summarise([1.0, 2.0, 3.0, 4.0, 5.0])
    assert (found.median_us, found.mean_us, found.min_us, found.iqr_rel) == (3.0, 3.0, 1.0, pytest.approx(2 / 3))
    assert (found.p10_us, found.p90_us) == (pytest.approx(1.4), pytest.approx(4.6))
    assert (found.outliers, found.bimodal) == ((), False)


def test_one_sample_is_its_own_statistics():
    found = summarise([7.0])
    assert (found.median_us, found.p10_us, found.iqr_rel, found.outliers, found.bimodal) == (7.0, 7.0, 0.0, (), False)


def test_outliers_are_marked_by_their_number_and_not_deleted():
    samples = [10.0 + 0.01 * (index % 5) for index in range(40)]
    samples[17] = 30.0
    found = summarise(samples)
    assert found.outliers == (17,)
    assert found.mean_us == pytest.approx(sum(samples) / 40)
    assert not found.bimodal


def test_two_speeds_are_called_bimodal_and_one_wide_one_is_not():
    dice = random.Random(3)
    assert summarise([dice.gauss(10, 0.1) for _ in range(30)] + [dice.gauss(14, 0.1) for _ in range(30)]).bimodal
    assert not summarise([dice.gauss(10, 1.0) for _ in range(60)]).bimodal
    assert not summarise([dice.uniform(9, 11) for _ in range(60)]).bimodal
    assert not summarise([10.0] * 60).bimodal


def test_the_interval_of_the_median_holds_it_as_often_as_it_says():
    dice = random.Random(5)
    held = 0
    for _ in range(400):
        low, high = median_interval([dice.gauss(5, 1) for _ in range(41)])
        held += low <= 5 <= high
    assert 0.93 <= held / 400 <= 1.0


def test_short_calls_are_batched_on_the_cpu_and_the_sample_is_per_call(monkeypatch):
    calls, now = Counter(), iter(range(0, 10**9, 2000))
    monkeypatch.setattr("tilebench_core.timing.cpu.time.perf_counter_ns", lambda: next(now))
    clock = CpuClock()
    with clock.case():
        samples = clock.measure([lambda: calls.update(a=1)], [0] * 5, lambda: None)
    assert [sample.calls for sample in samples] == [1, 50, 50, 50, 50]
    assert calls["a"] == 201
    assert [sample.busy_us for sample in samples] == [2.0, 0.04, 0.04, 0.04, 0.04]


def test_the_cpu_clock_keeps_nothing_of_a_case_that_is_over():
    class Big:
        def __call__(self):
            return None

    clock, big = CpuClock(), Big()
    with clock.case():
        clock.measure([big], [0, 0], lambda: None)
    gone = weakref.ref(big)
    del big
    gc.collect()
    assert gone() is None


def test_an_unknown_clock_is_refused_with_the_nearest_match():
    with pytest.raises(RequestError, match=r"unknown clock 'cutpi'; expected one of cupti, .* Did you mean 'cupti'\?"):
        clock_named("cutpi", {})
    assert isinstance(clock_named("mine", {"mine": "tilebench_core.timing.cpu:CpuClock"}), CpuClock)


def test_a_clock_that_cannot_be_used_says_what_stands_in_its_way(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "cupti", None)
    with pytest.raises(ClockError, match=r"clock cupti: .*pip install 'tilebench\[gpu\]'"):
        clock_named("cupti", {}).open()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"protocol": "fast"}, "timing.protocol='fast'; expected one of fixed, adaptive"),
        ({"repeat": 0}, "timing.repeat=0; expected a positive number"),
        ({"warmup": -1}, "timing.warmup=-1"),
        ({"precision": 1.5}, "timing.precision=1.5; expected a share"),
        ({"time_limit_s": 0}, "timing.time_limit_s=0"),
    ],
)
def test_settings_refuse_nonsense(change, message):
    with pytest.raises(ConfigError, match=message):
        TimingSettings(**change)


def node(name, time_ns=None, count=None, *children):
    metrics = {} if time_ns is None else {"time (ns)": time_ns, "count": count}
    return {"frame": {"name": name}, "metrics": metrics, "children": list(children)}


def test_a_profile_of_proton_is_summed_per_scope_and_nothing_else_counts():
    proton = pytest.importorskip("tilebench_triton.proton")
    tree = [
        node("ROOT", None, None,
             node("launch0", None, None, node("kernel_a", 100, 2), node("<captured_at>", None, None, node("kernel_b", 50, 2))),
             node("launch1", None, None, node("kernel_a", 7, 1)),
             node("flush", None, None, node("memset", 1000, 5)),
             node("launcher", None, None, node("kernel_c", 1000, 5))),
        {"device": "H200"},
    ]  # fmt: skip
    assert proton.scope_totals(tree) == {"launch0": (150.0, 4), "launch1": (7.0, 1)}
    assert proton.scope_totals([]) == {}


class FakeCupti:
    """CUPTI's side of the buffers: it asks for one, writes records of several lengths into it, and hands it back."""

    def __init__(self, records):
        self.records, self.lengths = records, {}

    def cuptiActivityRegisterCallbacks(self, requested, completed):
        self.requested, self.completed = requested, completed
        return 0

    def cuptiActivityGetNextRecord(self, buffer, valid, record):
        start, current = buffer.value, record._obj.value
        following = start if current is None else current + self.lengths[current]
        record._obj.value = following
        return 0 if following < start + valid.value else 12  # CUPTI_ERROR_MAX_LIMIT_REACHED

    def flush(self):
        address, size, most = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
        self.requested(ctypes.pointer(address), ctypes.pointer(size), ctypes.pointer(most))
        used = 0
        for record in self.records:
            ctypes.memmove(address.value + used, record.tobytes(), record.nbytes)
            self.lengths[address.value + used] = record.nbytes
            used += record.nbytes
        self.completed(None, 0, address.value, size.value, used)


def test_activity_records_are_read_in_the_layout_that_cupti_python_gives(monkeypatch):
    cupti = pytest.importorskip("cupti.cupti")
    kinds = cupti.ActivityKind

    def written(layout, **values):
        record = np.zeros(1, dtype=layout)
        for name, value in values.items():
            record[name] = value
        return record

    kernel = {"kind": int(kinds.CONCURRENT_KERNEL), "start": 1000, "end": 1700, "correlation_id": 7}
    fake = FakeCupti([
        written(cupti.activity_api_dtype, kind=int(kinds.RUNTIME), start=1, end=2, correlation_id=7),
        written(cupti.activity_kernel9_dtype, **kernel),
        written(cupti.activity_external_correlation_dtype, kind=int(kinds.EXTERNAL_CORRELATION), external_id=41, correlation_id=7),
        written(cupti.activity_memset5_dtype, kind=int(kinds.MEMSET), start=2000, end=2100, correlation_id=8),
        written(cupti.activity_kernel13_dtype, **{**kernel, "start": 1800, "end": 1900}),
    ])  # fmt: skip
    monkeypatch.setattr(activities, "_loaded_library", lambda: fake)
    buffers = activities.ActivityBuffers(cupti)
    fake.flush()
    assert buffers.take() == ({7: [(1000, 1700), (1800, 1900)], 8: [(2000, 2100)]}, {7: 41})
    fake.records = fake.records[:1]
    fake.flush()
    assert buffers.take() == ({}, {})


def test_a_buffer_that_cannot_be_read_fails_the_clock_and_not_the_kernel(monkeypatch):
    cupti = pytest.importorskip("cupti.cupti")
    kernel = np.zeros(1, dtype=cupti.activity_kernel9_dtype)
    kernel["kind"] = int(cupti.ActivityKind.CONCURRENT_KERNEL)
    fake = FakeCupti([kernel])
    monkeypatch.setattr(activities, "_loaded_library", lambda: fake)
    buffers = activities.ActivityBuffers(cupti)
    monkeypatch.setattr(FakeCupti, "cuptiActivityGetNextRecord", lambda self, *_: self.lengths["none"])
    fake.flush()
    with pytest.raises(ClockError, match=r"clock cupti: its records could not be read: KeyError: 'none'"):
        buffers.take()
    assert buffers.take() == ({}, {})
