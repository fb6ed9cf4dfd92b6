"""Tuning from end to end on the CPU: a DSL whose kernels say how long they took, and misbehave while they are tuned."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from distributions import TESTS, environment
from forked import run_all

from tilebench_core.campaign import Campaign
from tilebench_core.records import Record
from tilebench_core.tune.journal import Candidate, tuning_log

TUNABLE = TESTS / "tunable"


def command(folder: Path, campaign: str, *more: str, spaces=("sound",), tune: str = "shared") -> list[str]:
    named = ",".join(f"'{space}'" for space in spaces)
    return [
        "run", "operator=tuned_affine", "backend=[tunable]", "dtype=fp32", f"campaign={campaign}", "device=cpu",
        f"operators.tuned_affine.case_grid.space=[{named}]", "mode=tuned", f"tune={tune}", "timing=quick",
        "timing.cpu_clock=scripted", "tracking=none", "figures=false", f"results_dir={folder}",
        "limits.compile_s=1.5", "limits.run_s=1", f"backends.tunable.flavour={campaign}", *more,
    ]  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tuning")
    private = {"TILEBENCH_CACHE": str(folder / "cache"), "TUNABLE_COMPILED": str(folder / "compiled")}
    return folder, {**environment(folder / "site", TUNABLE), **private}


def killed_in_mid_search(folder: Path, env: dict[str, str]) -> tuple[list[str], str]:
    """Start a campaign, kill it with SIGKILL in a candidate, and return its command and its log."""
    given = command(folder, "killed", spaces=["interrupted"])
    given = [part.split("=")[0] + "=90" if part.startswith("limits.") else part for part in given]
    waiting = Path(env["TUNABLE_COMPILED"] + ".waiting")
    run = subprocess.Popen([sys.executable, "-m", "tilebench_core.cli", *given], env=env, cwd=folder)
    deadline = time.monotonic() + 90
    while not waiting.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    run.send_signal(signal.SIGKILL)
    run.wait()
    return given, (folder / "killed" / "tuning.jsonl").read_text()


@pytest.fixture(scope="module")
def runs(place):
    """All campaigns, with forked workers; those called after the one before use its winners."""
    folder, env = place
    killed, log = killed_in_mid_search(folder, env)
    (folder / "killed" / "tuning.jsonl").open("a").write('{"event":"candid')  # and its last line is torn
    (folder / "killed.txt").write_text(log)
    cases = ["operators.tuned_affine.case_grid.n=[1000,2000,4000]", "dtype=[fp32,fp16]"]
    sized = ["operators.tuned_affine.case_grid.n=[1000,2000,4000]", "operators.tuned_affine.case_grid.space=[sized]"]
    sized.append("tune.share=dtype")
    same, file = "backends.tunable.flavour=first", f"tune.from_campaign={folder}/tied/tuning.jsonl"
    wanted = {
        "killed": killed,
        "mixed": command(folder, "mixed", spaces=["mixed", "none", "late", "one"]),
        "tied": command(folder, "tied", "figures=true", spaces=["tied"]),
        "first": command(folder, "first", "mode=[default,tuned]"),
        "second": command(folder, "second", same),
        "warm": command(folder, "warm", same, "timing.cold=false", "timing.cpu_clock=scripted_means"),
        "replayed": command(folder, "replayed", "tune.from_campaign=mixed", tune="replay", spaces=["mixed", "tied"]),
        "filed": command(folder, "filed", file, tune="replay", spaces=["tied"]),
        "lost": command(folder, "lost", "tune.from_campaign=nowhere", tune="replay"),
        "case": command(folder, "case", *cases),
        "dtype": command(folder, "dtype", "tune.share=dtype", *cases),
        "operator": command(folder, "operator", "tune.share=operator", "tune.share_within=8", *cases),
        "sized": command(folder, "sized", *sized),
        "sized_again": command(folder, "sized_again", "backends.tunable.flavour=sized", *sized),
        "native": command(
            folder, "native", tune="native", spaces=["sound", "fast_and_wrong", "two_launches", "crash", "one"]
        ),
        "native_again": command(folder, "native_again", "backends.tunable.flavour=native", tune="native"),
    }
    return folder, dict(zip(wanted, run_all(list(wanted.values()), env, folder), strict=True))


def records(runs, campaign: str) -> list[Record]:
    return Campaign(runs[0] / campaign).records()


def record(runs, campaign: str, space: str) -> Record:
    return next(r for r in records(runs, campaign) if r.params["space"] == space)


def events(runs, campaign: str, event: str, space: str | None = None) -> list[dict]:
    found = tuning_log(runs[0] / campaign).events()
    keys = {e["search"] for e in found if e["event"] == "search" and space in (None, e["params"]["space"])}
    return [e for e in found if e["event"] == event and (space is None or e["search"] in keys)]


def candidates(runs, campaign: str, space: str) -> dict[str, Candidate]:
    log = tuning_log(runs[0] / campaign)
    found = {}
    for event in log.events():
        for raw in {"candidate": [event], "finals": event.get("candidates")}.get(event["event"], []):
            if event["search"] in {e["search"] for e in events(runs, campaign, "search", space)}:
                found[f"{raw['config']['act']} {raw['config']['us']}"] = raw
        if event["event"] == "lost" and event["config"]:
            found[f"{event['config']['act']} {event['config']['us']}"] = {"failure": event["reason"]}
    return found


def test_the_fastest_candidate_that_works_wins_among_all_that_do_not(runs):
    done = runs[1]
    found = record(runs, "mixed", "mixed")
    assert (found.outcome.value, found.config) == ("PASSED", {"act": "right", "us": 20.0}), done["mixed"].stdout
    assert found.median_us == 20.0
    assert found.config_source == "tuned: shared search over 12 configurations"
    assert done["mixed"].stderr == ""


def test_each_candidate_that_fails_says_how_and_costs_nobody_else(runs):
    found = candidates(runs, "mixed", "mixed")
    failures = {name: found[name]["failure"] for name in found if found[name]["failure"]}
    expected = {
        "wrong 1.0": r"^WRONG: first run: output\[\d+\] is",
        "in_place 2.0": r"^WRONG: output shares its memory with input 0|^WRONG: first run: output shares",
        "mutating 3.0": r"^WRONG: .*",
        "unwritten 4.0": r"^WRONG: ",
        "hang 5.0": r"^no end of 'tune 7/12' in time$",
        "crash 6.0": r"^the worker died by SIGSEGV in 'tune 8/12'$",
        "too_large 7.0": r"^LAUNCH_ERROR: out of resource: shared memory, required 300000",
        "too_much_memory 8.0": r"^OUT_OF_MEMORY: .*can't allocate memory",
    }
    assert set(failures) == set(expected)
    assert {name: text for name, text in failures.items() if not re.search(expected[name], text)} == {}
    assert found["right 22.0"]["median_us"] == 22.0, "the candidate behind one that ruined the inputs"
    assert found["right 90.0"]["dropped"]
    assert len(found["right 90.0"]["samples_us"]) == 3


def test_a_hang_and_a_crash_are_told_while_they_happen(runs):
    assert runs[1]["mixed"].stdout.count("worker lost") == 3


def test_of_tied_candidates_the_first_in_the_list_wins(runs):
    assert record(runs, "tied", "tied").config == {"act": "right", "us": 20.1}
    winner = events(runs, "tied", "winner", "tied")[0]
    assert winner["reason"] == "first in the list of 5 within 1% of the fastest (20.00 µs)"
    finalists = [c for c in candidates(runs, "tied", "tied").values() if c["finalist"]]
    assert len(finalists) == 6, "all that may be tied are measured in turns, though four were asked for"


def test_a_space_without_a_working_candidate_ends_the_trial_with_the_reasons(runs):
    found = record(runs, "mixed", "none")
    assert found.outcome.value == "LAUNCH_ERROR"
    assert found.reason.startswith("none of 3 configurations works: LAUNCH_ERROR: out of resource")
    assert [event["reason"] for event in events(runs, "mixed", "failed")] == [found.reason]
    assert record(runs, "mixed", "one").config_source == "tuned: the space has one configuration"


def test_a_death_among_the_finalists_does_not_repeat_itself_for_ever(runs):
    found = record(runs, "mixed", "late")
    assert found.outcome.value == "PASSED"
    winner = events(runs, "mixed", "winner", "late")[0]
    assert (
        "in the first round; the finalists were not measured in turns: the worker died by SIGSEGV" in winner["reason"]
    )


def test_default_and_tuned_stand_side_by_side_in_one_campaign(runs):
    by_mode = {r.mode: r for r in records(runs, "first")}
    assert (by_mode["default"].config, by_mode["default"].median_us) == ({"act": "right", "us": 40.0}, 40.0)
    assert (by_mode["tuned"].config, by_mode["tuned"].median_us) == ({"act": "right", "us": 20.0}, 20.0)
    winner = events(runs, "first", "winner")[0]
    assert (winner["median_us"], winner["default_us"], winner["failed"]) == (20.0, 40.0, 0)
    assert winner["compile_s"] > 0
    assert winner["measure_s"] > 0


def test_the_next_process_finds_the_winner_without_compiling_or_measuring_a_candidate(runs, place):
    found = records(runs, "second")[0]
    assert found.config == {"act": "right", "us": 20.0}
    assert found.config_source.startswith("tuned: found again, shared search of ")
    assert [e["event"] for e in tuning_log(runs[0] / "second").events()] == ["used"]
    compiled = (runs[0] / "compiled").read_text().splitlines()
    # One compilation by each campaign of this flavour beside the searches: of the default, and of the winner.
    first, second, warm = 1 + 5 + 4 + 1, 1, 5 + 4 + 1
    assert sum(line.startswith("first ") for line in compiled) == first + second + warm


def test_another_protocol_is_searched_anew_also_by_a_clock_that_can_be_asked_once(runs):
    found = records(runs, "warm")[0]
    assert found.config_source == "tuned: shared search over 5 configurations"
    assert (found.clock, found.config["us"]) == ("scripted_means", 20.0)
    assert len(events(runs, "warm", "winner")) == 1


def test_winners_are_replayed_from_a_campaign_and_what_it_lacks_fails_by_name(runs):
    found = record(runs, "replayed", "mixed")
    assert (found.outcome.value, found.config) == ("PASSED", {"act": "right", "us": 20.0})
    assert found.config_source == "tuned: replayed from mixed"
    lacking = record(runs, "replayed", "tied")
    assert (lacking.outcome.value, lacking.config) == ("ERROR", None)
    assert "mixed holds no winner of tuned_affine fp32 n=1000 space=tied on tunable" in lacking.reason
    assert runs[1]["replayed"].returncode == 1


def test_winners_are_replayed_from_a_tuning_log(runs):
    assert record(runs, "filed", "tied").config == {"act": "right", "us": 20.1}
    assert runs[1]["filed"].returncode == 0


def test_a_replay_of_nothing_is_a_wrong_request(runs):
    assert runs[1]["lost"].returncode == 2
    assert "no campaign 'nowhere' here; expected a folder or one of: " in runs[1]["lost"].stderr
    assert not (runs[0] / "lost").exists()


@pytest.mark.parametrize(("share", "searches"), [("case", 6), ("dtype", 2), ("operator", 1)])
def test_winners_are_shared_as_far_as_was_asked_for(runs, share, searches):
    found = records(runs, share)
    assert len(found) == 6
    assert {r.config["us"] for r in found} == {20.0}
    assert sum(r.config_source == "tuned: shared search over 5 configurations" for r in found) == searches
    reused = [r for r in found if r.config_source.startswith("tuned: winner of dtype=")]
    assert len(reused) == 6 - searches
    assert all(f"(tune.share={share})" in r.config_source for r in reused)


def test_a_shared_winner_is_that_of_the_nearest_case(runs):
    sources = {(r.dtype, r.params["n"]): r.config_source for r in records(runs, "dtype")}
    assert sources["fp32", 4000] == "tuned: shared search over 5 configurations"
    assert sources["fp32", 1000] == (
        "tuned: winner of dtype=fp32 n=4000 space=sound, faster than the default here (tune.share=dtype)"
    )


@pytest.mark.parametrize("campaign", ["sized", "sized_again"])
def test_a_shared_winner_must_beat_the_default_that_was_made_for_the_case(runs, campaign):
    found = {r.params["n"]: r for r in records(runs, campaign)}
    assert {n: r.config["us"] for n, r in found.items()} == {1000: 15.0, 2000: 20.0, 4000: 20.0}
    winner = "winner of dtype=fp32 n=4000 space=sized"
    assert found[1000].config_source == f"tuned: the default, which the {winner} does not beat here (tune.share=dtype)"
    assert found[2000].config_source == f"tuned: {winner}, faster than the default here (tune.share=dtype)"
    measured = [e["config"]["us"] for e in tuning_log(runs[0] / campaign).events() if e["event"] == "candidate"]
    assert measured == ([40.0, 20.0, 30.0, 15.0, 20.0, 40.0, 20.0] if campaign == "sized" else [])


def test_the_case_that_the_others_share_their_winner_with_runs_first(runs):
    order = [(r.dtype, r.params["n"]) for r in records(runs, "dtype")]
    assert order == [(dtype, n) for dtype in ("fp32", "fp16") for n in (4000, 1000, 2000)]


def test_the_native_tuner_chooses_from_the_same_space_and_its_cost_is_logged(runs):
    found = record(runs, "native", "sound")
    assert (found.outcome.value, found.config) == ("PASSED", {"act": "right", "us": 20.0})
    assert found.config_source == "tuned: native search over 5 configurations"
    winner = events(runs, "native", "winner", "sound")[0]
    assert (winner["kind"], winner["candidates"], winner["median_us"]) == ("native", 5, 20.0)
    assert winner["reason"] == "chosen by tunable's own tuner; one call each"
    assert winner["seconds"] >= winner["compile_s"] > 0
    assert len(candidates(runs, "native", "sound")) == 5


def test_a_native_winner_is_verified_like_any_kernel(runs):
    found = record(runs, "native", "fast_and_wrong")
    assert (found.outcome.value, found.config) == ("WRONG", {"act": "wrong", "us": 10.0})
    assert found.median_us is None


def test_what_a_native_tuner_cannot_be_given_is_unsupported_and_runs_with_nothing_else(runs):
    found = record(runs, "native", "two_launches")
    assert (found.outcome.value, found.config) == ("UNSUPPORTED", None)
    assert found.reason == "tune=native: run launches 2 kernels, and this tuner times one"
    assert [e["reason"] for e in events(runs, "native", "refused")] == [
        "run launches 2 kernels, and this tuner times one"
    ]


def test_a_death_in_a_native_tuner_costs_the_trial(runs):
    found = record(runs, "native", "crash")
    assert (found.outcome.value, found.reason) == ("CRASHED", "the worker died by SIGSEGV in 'native tuning'")
    assert record(runs, "native", "one").outcome.value == "PASSED"


def test_native_winners_are_found_again_and_kept_apart_from_ours(runs):
    assert records(runs, "native_again")[0].config_source.startswith("tuned: found again, native search of ")


def test_the_log_is_drawn_beside_the_figures_of_the_operator(runs):
    image = runs[0] / "tied" / "figures" / "tuned_affine" / "fp32" / "tuning.png"
    assert image.stat().st_size > 5000
    assert "figures" in runs[1]["tied"].stdout


def test_a_search_that_is_killed_with_its_run_goes_on_with_the_candidate_it_was_at(runs):
    assert runs[1]["killed"].returncode == 0, runs[1]["killed"].stderr
    log, before = (runs[0] / "killed" / "tuning.jsonl").read_text(), (runs[0] / "killed.txt").read_text()
    added = [json.loads(line) for line in log[len(before) :].splitlines()[1:]]
    announced = [event["config"]["us"] for event in added if event["event"] == "started"]
    assert announced == [10.0, 20.0], "what had ended is not run again, and nobody is charged with the kill"
    found = records(runs, "killed")[0]
    assert (found.outcome.value, found.config) == ("PASSED", {"act": "interrupted", "us": 10.0})
