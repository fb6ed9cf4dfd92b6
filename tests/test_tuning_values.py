"""The parts of tuning that are functions from values to values: keys, ties, sharing, the log, replay, and its figure."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from packs import backend_class

from tilebench_core import Case, Device
from tilebench_core.backend import NativeCandidate, NativeSearch
from tilebench_core.config import RunConfig, TuneSettings, run_config
from tilebench_core.device import MULTIPROCESSORS, multiprocessors
from tilebench_core.errors import ConfigError, NotTunable, RequestError
from tilebench_core.figures.tuning import draw_tuning, tuning_curves
from tilebench_core.kernel import Kernel
from tilebench_core.precompile.jobs import Followers, Job, jobs_of, key_of, slices_of, worthwhile
from tilebench_core.precompile.work import ComingSearch, compile_job
from tilebench_core.registry import installed
from tilebench_core.timing import TimingSettings
from tilebench_core.tracking.sync import _files
from tilebench_core.tune.choose import code_of
from tilebench_core.tune.command import tune_command
from tilebench_core.tune.journal import Candidate, Journal, candidate_key
from tilebench_core.tune.replay import pinned_config, pinned_configs
from tilebench_core.tune.search import finalists_of, pick
from tilebench_core.tune.sharing import searched
from tilebench_core.tune.store import Winner, WinnerStore, candidates_of, known_winner, winner_key

GPU = Device(kind="cuda", name="H200", driver="570.1", capability=(9, 0))
SOURCE = SimpleNamespace(source_hash="abc")


@dataclass(frozen=True)
class Options:
    fast_math: bool = False


def backend(version: str = "1", name: str = "one", options: Options | None = None):
    return backend_class(name, versions=lambda self: {"dsl": version}, Options=Options)(options)


# One change at a time of everything that can change which configuration wins.
CODES = {
    "the backend": lambda: code_of(backend(name="two"), SOURCE, GPU, TimingSettings(), "shared"),
    "its version": lambda: code_of(backend("2"), SOURCE, GPU, TimingSettings(), "shared"),
    "its options": lambda: code_of(backend(options=Options(True)), SOURCE, GPU, TimingSettings(), "shared"),
    "the kernel's source": lambda: code_of(
        backend(), SimpleNamespace(source_hash="abd"), GPU, TimingSettings(), "shared"
    ),
    "the device": lambda: code_of(backend(), SOURCE, replace(GPU, name="H100"), TimingSettings(), "shared"),
    "the driver": lambda: code_of(backend(), SOURCE, replace(GPU, driver="580"), TimingSettings(), "shared"),
    "a warm cache": lambda: code_of(backend(), SOURCE, GPU, TimingSettings(cold=False), "shared"),
    "no graphs": lambda: code_of(backend(), SOURCE, GPU, TimingSettings(graph=False), "shared"),
    "the kind of search": lambda: code_of(backend(), SOURCE, GPU, TimingSettings(), "native"),
}
X, SPACE = torch.zeros(4, 6), [{"BLOCK": 1}, {"BLOCK": 2}]
INPUTS = {
    "a shape": (torch.zeros(6, 4), 3),
    "strides": (torch.zeros(6, 4).T, 3),
    "a dtype": (torch.zeros(4, 6, dtype=torch.float16), 3),
    "a plain value": (X, 4),
    "their number": (X, 3, 3),
}


def code() -> str:
    return code_of(backend(), SOURCE, GPU, TimingSettings(), "shared")


@pytest.mark.parametrize("ingredient", CODES)
def test_a_winner_is_not_found_again_after_a_change_of(ingredient):
    assert CODES[ingredient]() != code() == code()


@pytest.mark.parametrize("ingredient", INPUTS)
def test_a_winner_is_not_found_again_for_inputs_that_differ_in(ingredient):
    assert winner_key(code(), INPUTS[ingredient], SPACE) != winner_key(code(), (X, 3), SPACE)


def test_a_winner_is_not_found_again_in_another_space_and_is_with_other_values_in_the_tensors():
    assert winner_key(code(), (X, 3), SPACE[:1]) != winner_key(code(), (X, 3), SPACE)
    assert winner_key(code(), (X, 3), SPACE[::-1]) != winner_key(code(), (X, 3), SPACE)
    assert winner_key(code(), (X + 1, 3), SPACE) == winner_key(code(), (X, 3), SPACE)


def test_samples_and_clock_of_the_protocol_are_no_part_of_the_key():
    other = TimingSettings(repeat=7, clock="events")
    assert code_of(backend(), SOURCE, GPU, other, "shared") == code()


WINNER = Winner(
    key="k1", operator="softmax", dtype="fp16", params={"n": 1000}, backend="one", device="H200", config={"BLOCK": 1},
    median_us=2.0, default_us=3.0, reason="fastest of 2", candidates=2, failed=0, seconds=1.0, when="now", code="c",
)  # fmt: skip
BYTES = SimpleNamespace(bytes=lambda case: case["n"] * case.dtype_size)


def known(winners, share: str, n: int = 2000, dtype: str = "fp16", **more) -> Winner | None:
    given = {"key": "k2", "code": "c", "candidates": SPACE, "within": 10, **more}
    return known_winner(winners, operator=BYTES, case=Case("softmax", dtype, {"n": n}), share=share, **given)


def test_a_winner_of_another_case_is_taken_only_as_far_as_it_is_shared():
    far = replace(WINNER, key="k9", params={"n": 9000}, config={"BLOCK": 2})
    assert known([WINNER, far], "case") is None
    assert known([WINNER, far], "dtype") is WINNER
    assert known([WINNER, far], "dtype", n=8000) is far
    assert known([WINNER, far], "dtype", dtype="fp32") is None
    assert known([WINNER, far], "operator", dtype="fp32") is WINNER


def test_a_winner_is_not_shared_with_a_case_of_quite_another_size():
    assert known([WINNER], "dtype", n=4000, within=4) is WINNER
    assert known([WINNER], "dtype", n=4001, within=4) is None
    assert known([WINNER], "dtype", n=249, within=4) is None


@pytest.mark.parametrize(
    ("sizes", "chosen"), [(range(1, 21), [20, 4]), ([5], [5]), ([], []), ([1, 2, 4, 8, 16], [16, 2]), ([0, 8], [8, 0])]
)
def test_every_case_is_searched_or_near_one_that_is(sizes, chosen):
    assert searched(sizes, float, 4) == chosen


def test_a_factor_below_one_is_a_wrong_request():
    with pytest.raises(ConfigError, match=r"tune\.share_within=0\.5: expected a factor of at least 1"):
        run_config({"operators": {}, "backends": {}, "tune": {"share_within": 0.5}})


def test_its_own_winner_stands_above_a_nearer_one():
    own = replace(WINNER, key="k2", dtype="fp32", params={"n": 1})
    assert known([WINNER, own], "operator") is own


@pytest.mark.parametrize("more", [{"code": "d"}, {"candidates": [{"BLOCK": 3}]}])
def test_a_winner_of_other_code_or_outside_the_space_is_not_shared(more):
    assert known([WINNER], "operator", **more) is None


def test_the_store_survives_torn_lines_and_keeps_the_last_winner_of_a_key(tmp_path):
    store = WinnerStore(tmp_path / "deep" / "winners.jsonl")
    assert store.all() == []
    store.put(WINNER)
    with store.path.open("a") as file:
        file.write('{"key": "k1", "torn')
    store.put(replace(WINNER, median_us=1.5))
    assert [winner.median_us for winner in store.all()] == [1.5]
    assert store.get("nothing") is None
    assert store.clear() == 1
    assert store.all() == []


def test_a_line_of_the_store_is_parsed_once_and_what_is_written_elsewhere_is_seen(tmp_path):
    store, another = WinnerStore(tmp_path / "winners.jsonl"), WinnerStore(tmp_path / "winners.jsonl")
    store.put(WINNER)
    assert store.all()[0] is another.all()[0]
    another.put(replace(WINNER, key="k2"))
    assert [winner.key for winner in store.all()] == ["k1", "k2"]
    another.clear()
    another.put(replace(WINNER, median_us=3.0))
    assert [winner.median_us for winner in store.all()] == [3.0]


def test_the_command_lists_shows_and_forgets_winners_and_what_it_shows_can_be_replayed(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TILEBENCH_CACHE", str(tmp_path))
    WinnerStore().put(WINNER)
    assert tune_command(argparse.ArgumentParser(), ["list"]) == 0
    line = "k1  softmax fp16 n=1000 on one, H200, shared: 2.00 µs, 1.50× over the default"
    assert capsys.readouterr().out.startswith(line)
    assert tune_command(argparse.ArgumentParser(), ["show", "k1"]) == 0
    (tmp_path / "pins.json").write_text(capsys.readouterr().out)
    pinned = pinned_configs(str(tmp_path / "pins.json"), "results")
    assert pinned_config(pinned, "softmax", Case("softmax", "fp16", {"n": 1000}), "one") == {"BLOCK": 1}
    assert tune_command(argparse.ArgumentParser(), ["clear"]) == 0
    with pytest.raises(RequestError, match="no winner has the key 'k1'"):
        tune_command(argparse.ArgumentParser(), ["show", "k1"])


def ends(**medians: float | None) -> tuple[dict[str, Candidate], list[dict]]:
    space = [{"name": name} for name in medians]
    ended = [Candidate(config={"name": n}, median_us=m, failure=None if m else "it fails") for n, m in medians.items()]
    return {candidate_key(c.config): c for c in ended}, space


def test_the_earliest_of_those_within_the_noise_of_the_fastest_wins_whoever_ended_first():
    ended, space = ends(slow=11.0, first=10.09, fails=None, second=10.0, third=10.05)
    for order in (ended, dict(reversed(ended.items()))):
        winner, reason = pick(order, space)
        assert winner.config["name"] == "first"
        assert reason == "first in the list of 3 within 1% of the fastest (10.00 µs)"


def test_a_clear_winner_is_the_fastest_and_none_is_none():
    ended, space = ends(slow=11.0, first=10.2, second=10.0)
    assert pick(ended, space)[0].config["name"] == "second"
    assert pick(*ends(a=None, b=None)) is None


def test_everybody_who_may_be_tied_becomes_a_finalist_and_failures_never():
    ended, space = ends(a=10.15, b=30.0, c=10.0, d=10.1, e=None, f=10.05, g=20.0)
    names = [c.config["name"] for c in finalists_of(ended, space, 2)]
    assert names == ["a", "c", "d", "f"]
    assert [c.config["name"] for c in finalists_of(ended, space, 5)] == ["a", "c", "d", "f", "g"]


def test_the_default_leads_the_candidates_and_stands_among_them_once():
    assert candidates_of({"BLOCK": 2}, SPACE) == [{"BLOCK": 2}, {"BLOCK": 1}]


def test_a_death_is_charged_to_the_candidate_that_was_announced_and_to_nothing_else(tmp_path):
    journal = Journal(tmp_path / "tuning.jsonl")
    journal.write("started", "s1", trial="t1", config={"a": 1})
    journal.candidate("s1", Candidate(config={"a": 1}, median_us=2.0))
    journal.lost("t1", "between two candidates")
    assert journal.ended("s1") == {candidate_key({"a": 1}): Candidate(config={"a": 1}, median_us=2.0)}
    journal.write("started", "s2", trial="t2", config={"a": 3})
    journal.write("started", "s1", trial="t1", config={"a": 2})
    journal.lost("t1", "it hung")
    assert journal.ended("s1")[candidate_key({"a": 2})].failure == "it hung"
    assert journal.ended("s2") == {}, "another job's candidate, or one interrupted with its run, is measured again"
    journal.write("finalists", "s1", trial="t1", configs=[{"a": 1}])
    journal.lost("t1", "among the finalists")
    assert journal.lost_finalists("s1") == "among the finalists"


def test_a_search_that_has_its_winner_begins_anew_if_it_is_asked_for_again(tmp_path):
    journal = Journal(tmp_path / "tuning.jsonl")
    journal.candidate("s", Candidate(config={"a": 1}, median_us=2.0))
    journal.write("winner", "s", config={"a": 1}, candidates=1)
    assert journal.ended("s") == {}


def test_a_torn_line_is_not_continued_by_the_next(tmp_path):
    journal = Journal(tmp_path / "tuning.jsonl")
    journal.path.write_text('{"event":"started","search":"s","config":{"a"')
    journal.candidate("s", Candidate(config={"a": 1}, median_us=2.0))
    assert [event["event"] for event in journal.events()] == ["candidate"]


@pytest.mark.parametrize("form", ["store", "log", "shown", "records"])
def test_winners_are_pinned_by_every_file_that_holds_them(tmp_path, form):
    path, entry = tmp_path / "pins", asdict(WINNER)
    record = {k: entry[k] for k in ("operator", "dtype", "params", "backend", "config")}
    lines = {
        "store": [entry],
        "log": [
            {"event": "search", "search": "s", **record, "config": {"BLOCK": 9}},
            {"event": "winner", "search": "s", **entry},
            {"event": "candidate", "search": "s", "config": {"BLOCK": 7}},
        ],
        "records": [
            {**record, "mode": "tuned", "outcome": "PASSED"},
            {**record, "mode": "default", "outcome": "PASSED", "config": {"BLOCK": 8}},
            {**record, "mode": "tuned", "outcome": "WRONG", "config": {"BLOCK": 9}},
        ],
        "shown": [],
    }[form]
    path.write_text("\n".join(json.dumps(line) for line in lines) if lines else json.dumps([entry], indent=1))
    pinned = pinned_configs(str(path), "results")
    assert pinned_config(pinned, "softmax", Case("softmax", "fp16", {"n": 1000}), "one") == {"BLOCK": 1}
    assert pinned_config(pinned, "softmax", Case("softmax", "fp16", {"n": 1001}), "one") is None
    assert pinned_config(pinned, "softmax", Case("softmax", "fp16", {"n": 1000}), "two") is None


@pytest.mark.parametrize(("text", "message"), [("{}\n", "holds no tuned configuration"), ("no json", "not JSON lines")])
def test_a_file_without_winners_is_a_wrong_request(tmp_path, text, message):
    path = tmp_path / "file"
    path.write_text(text)
    with pytest.raises(RequestError, match=message):
        pinned_configs(str(path), "results")


def test_a_backend_has_no_tuner_of_its_own_unless_it_says_so():
    with pytest.raises(NotTunable, match="backend 'one' has no tuner of its own; tune=shared searches the same space"):
        backend().autotune(Kernel(run=print), (), SPACE)


def test_a_native_search_cannot_choose_what_it_has_not_timed():
    failed = NativeCandidate(config=SPACE[0], failure="no")
    with pytest.raises(ValueError, match="which it was not given or has not timed"):
        NativeSearch(tuner="t", measured="m", winner=SPACE[0], candidates=(failed,))


def test_tuned_needs_to_know_how():
    with pytest.raises(ConfigError, match="add tune=shared, tune=native or tune=replay"):
        run_config({"operators": {}, "backends": {}, "mode": "tuned"})
    with pytest.raises(ConfigError, match=r"tune\.kind='nativ'"):
        run_config({"operators": {}, "backends": {}, "tune": {"kind": "nativ"}})


@pytest.mark.parametrize(("kind", "whole"), [("shared", [False, True]), ("native", [False]), ("replay", [False])])
def test_the_whole_space_is_compiled_ahead_for_our_own_search_only(kind, whole):
    def trial(mode):
        return SimpleNamespace(verdict=None, module="m", mode=mode, backend="one")

    case = Case("softmax", "fp16", {"n": 8})
    operator = SimpleNamespace(folder="softmax", config=BYTES)
    task = SimpleNamespace(trials=[trial("default"), trial("tuned")], case=case, operator=operator)
    assert [job.tuned for job in jobs_of([task], TuneSettings(kind=kind))] == whole


def test_cases_that_share_a_winner_wait_until_those_that_are_searched_are_compiled():
    trial = SimpleNamespace(verdict=None, module="m", mode="tuned", backend="one")
    operator = SimpleNamespace(folder="softmax", config=BYTES)
    cases = [Case("softmax", dtype, {"n": n}, index=n) for dtype in ("fp16", "fp32") for n in range(1, 21)]
    tasks = [SimpleNamespace(trials=[trial], case=case, operator=operator) for case in cases]
    jobs = jobs_of(tasks, TuneSettings(kind="shared", share="dtype"))
    assert [(case.dtype, case["n"]) for job in jobs for case in job.cases] == [
        ("fp16", 20), ("fp16", 4), ("fp32", 20), ("fp32", 4),
    ]  # fmt: skip
    assert all(job.waiting == [case for case in cases if case.dtype == job.cases[0].dtype] for job in jobs)
    everywhere = jobs_of(tasks, TuneSettings(kind="shared", share="operator"))
    assert [(case.dtype, case["n"]) for job in everywhere for case in job.cases] == [
        ("fp32", 20), ("fp16", 9), ("fp16", 2),
    ]  # fmt: skip
    apart = jobs_of(tasks, TuneSettings(kind="shared"))
    assert len(apart) == 40
    assert all(job.waiting == [] for job in apart)


def test_cases_that_share_a_winner_are_compiled_when_all_that_are_searched_for_them_have_run():
    cases = [Case("softmax", "fp16", {"n": n}, index=n) for n in range(1, 6)]

    def job(backend, searched):
        return Job(backend, "m", "softmax", [cases[searched]], True, cases)

    followers = Followers([job("one", 4), job("one", 0), job("two", 4)])
    large, small, other = (key_of("softmax", cases[place]) for place in (4, 0, 2))
    assert [followers.held(key) for key in (large, small, other)] == [
        False,
        True,
        True,
    ]  # `two` searches the large one only
    (freed,) = followers.after(large)
    assert (freed.backend, freed.cases, freed.waiting) == ("two", cases[:4], [])
    assert [followers.held(key) for key in (large, small, other)] == [False, False, True]
    (freed,) = followers.after(small)
    assert (freed.backend, freed.cases) == ("one", cases[1:4])
    assert not followers.held(other)
    assert followers.after(other) == []


def test_only_the_winner_is_compiled_ahead_where_it_is_known(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEBENCH_CACHE", str(tmp_path))
    case = Case("softmax", "fp16", {"n": 8})
    kernel = Kernel(run=print, default=lambda case: SPACE[1], space=lambda case: SPACE)
    source = SimpleNamespace(source_hash="abc", load=lambda: kernel)
    operator = SimpleNamespace(config=SimpleNamespace(raw={}, bytes=BYTES.bytes))
    config = RunConfig(operators={}, backends={}, tune=TuneSettings(kind="shared"))
    search = ComingSearch(config, GPU, operator)
    assert search.configurations(backend(), source, case, (X,)) == [SPACE[1], SPACE[0]]
    assert not search.seems_known(backend(), source, case)
    kept = replace(
        WINNER, key=winner_key(code(), (X,), [SPACE[1], SPACE[0]]), code=code(), dtype="fp16", params={"n": 8}
    )
    WinnerStore().put(kept)
    assert search.configurations(backend(), source, case, (X,)) == [{"BLOCK": 1}]
    assert search.seems_known(backend(), source, case)
    assert not search.seems_known(backend(), source, replace(case, params={"n": 9}))


def test_compilers_see_no_gpu_and_know_how_many_multiprocessors_it_has(monkeypatch):
    server = "import os, tilebench_core.precompile.server; print(repr(os.environ['CUDA_VISIBLE_DEVICES']))"
    assert subprocess.run([sys.executable, "-c", server], capture_output=True, text=True).stdout == "''\n"
    assert multiprocessors(torch.device("cpu")) == 4
    monkeypatch.setenv(MULTIPROCESSORS, "132")
    assert multiprocessors(torch.device("cpu")) == 132


@pytest.mark.parametrize(("searches", "cores", "slices"), [(1, 15, 15), (3, 15, 5), (40, 15, 1), (0, 15, 15)])
def test_few_searches_are_compiled_in_so_many_parts_that_no_core_is_idle(searches, cores, slices):
    jobs = [Job("one", "m", "softmax", [], True, [])] * searches + [Job("one", "m", "softmax", [], False, [])]
    assert slices_of(jobs, cores) == slices


@pytest.mark.parametrize(
    ("cases", "tuned", "known", "jobs_left"),
    [
        ([1], False, False, 0),
        ([1, 1], False, False, 2),
        ([2], False, False, 1),
        ([1], True, False, 1),
        ([1], True, True, 0),
    ],
)
def test_a_single_kernel_is_left_to_the_worker_and_a_search_only_if_its_winner_is_known(cases, tuned, known, jobs_left):
    one = Case("softmax", "fp16", {"n": 8})
    jobs = [Job("one", "m", "softmax", [one] * count, tuned, []) for count in cases]
    assert len(worthwhile(jobs, lambda job: known)) == jobs_left


def test_a_single_winner_that_others_wait_for_is_compiled_ahead():
    one, other = Case("softmax", "fp16", {"n": 8}), Case("softmax", "fp16", {"n": 9})
    assert len(worthwhile([Job("one", "m", "softmax", [one], True, [one, other])], lambda job: True)) == 1


def test_the_parts_of_a_space_are_the_space(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEBENCH_CACHE", str(tmp_path))
    compiled = []
    monkeypatch.setattr(
        "tilebench_core.pytorch.eager.TorchBackend.warm_cache",
        lambda self, kernel, inputs, config, arch: compiled.append(dict(config)),
    )
    operator = installed().operators["softmax"]
    config = RunConfig(operators={}, backends={}, tune=TuneSettings(kind="shared"))
    module = installed().kernel(operator, "torch").module
    search, case = ComingSearch(config, GPU, operator), operator.config.cases("fp16", "smoke")[0]
    monkeypatch.setattr(search, "configurations", lambda *_: [{"BLOCK": n} for n in range(7)])
    done = [compile_job("torch", {}, module, "softmax", [case], search, "sm_90", (n, 3)) for n in range(3)]
    assert done == [(3, ()), (2, ()), (2, ())]
    assert sorted(c["BLOCK"] for c in compiled) == list(range(7))


def test_configurations_that_share_their_code_are_compiled_ahead_once(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEBENCH_CACHE", str(tmp_path))
    compiled = []
    backend = "tilebench_core.pytorch.eager.TorchBackend"

    def code_key(self, kernel, inputs, config, arch):
        if config["BLOCK"] == 4:
            raise ValueError("a configuration that run refuses")
        return config["BLOCK"] // 2

    monkeypatch.setattr(f"{backend}.code_key", code_key)
    monkeypatch.setattr(
        f"{backend}.warm_cache", lambda self, kernel, inputs, config, arch: compiled.append(config["BLOCK"])
    )
    operator = installed().operators["softmax"]
    search = ComingSearch(RunConfig(operators={}, backends={}, tune=TuneSettings(kind="shared")), GPU, operator)
    monkeypatch.setattr(search, "configurations", lambda *_: [{"BLOCK": n} for n in range(7)])
    module, case = installed().kernel(operator, "torch").module, operator.config.cases("fp16", "smoke")[0]
    for n in range(2):
        compile_job("torch", {}, module, "softmax", [case], search, "sm_90", (n, 2))
    assert sorted(compiled) == [0, 2, 4, 5, 6]


def logged(folder: Path) -> Journal:
    """Two searches: one of three candidates, whose last took the worker with it; one that knows no winner yet."""
    journal = Journal(folder / "tuning.jsonl")
    about = {"operator": "softmax", "dtype": "fp16", "backend": "one", "kind": "shared", "default": {"a": 1}}
    journal.write("search", "s", **about, params={"n": 1}, space=[{"a": 2}, {"a": 1}, {"a": 3}])
    for value, median in ((2, 20.0), (1, 30.0)):
        journal.candidate("s", Candidate(config={"a": value}, median_us=median))
    journal.finals("s", [Candidate(config={"a": 2}, median_us=19.0, finalist=True)])
    journal.write("lost", "s", trial="t", config={"a": 3}, reason="it crashed")
    journal.write("winner", "s", config={"a": 2}, candidates=3)
    journal.write("search", "r", **about, params={"n": 2}, space=[{"a": 1}, {"a": 2}])
    journal.candidate("r", Candidate(config={"a": 1}, median_us=40.0))
    return journal


def test_the_figure_shows_default_winner_and_failures_of_each_search(tmp_path):
    first, second = tuning_curves(logged(tmp_path).events())
    assert [c.median_us for c in first.candidates] == [19.0, 30.0, None]
    assert [c.failure for c in first.candidates] == [None, None, "it crashed"]
    assert (first.default, first.winner, first.label) == (1, 0, "n=1")
    assert (second.default, second.winner) == (0, None)
    assert second.candidates[1].failure is None


def test_the_log_and_its_figure_are_among_what_mlflow_gets(tmp_path):
    logged(tmp_path)
    drawn = draw_tuning(tmp_path)
    assert drawn == [tmp_path / "figures" / "softmax" / "fp16" / "tuning.png"]
    assert drawn[0].read_bytes()[:4] == b"\x89PNG"
    assert {path for path, _ in _files(tmp_path)} == {tmp_path / "tuning.jsonl", drawn[0]}


def test_nothing_is_drawn_where_nothing_was_searched(tmp_path):
    assert draw_tuning(tmp_path) == []
    Journal(tmp_path / "tuning.jsonl").write("used", "", operator="softmax", config={})
    assert draw_tuning(tmp_path) == []
