"""The state machine: every status, freezing, budgets, stopping, and SIGKILL between and inside any two steps."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from functools import partial

import pytest
from llm_machine import KERNEL, PRICE, PUBLISHED, ListProvider, NotedEvaluator, block, machine

from tilebench_core.errors import RequestError
from tilebench_core.llm.archive import Archive, ArchiveError
from tilebench_core.llm.budget import check_priced, exceeded
from tilebench_core.llm.protocol import Budget
from tilebench_core.llm.provider import ProviderError
from tilebench_core.llm.reply import candidates_in
from tilebench_core.llm.rounds import read_trajectory
from tilebench_core.llm.status import End, Status
from tilebench_core.llm.steps import STEPS, Stopped
from tilebench_core.llm.usage import Amount, Usage

TEN = [
    block("COMPILE_ERROR"), block("WRONG"), block("VALID 40"), "no code at all", block("VALID 16"), block("VALID 25"),
    block("TIMEOUT"), block("", source=KERNEL.replace("return y", "return torch.relu(x)")), block("VALID 12"), block("VALID 10"),
]  # fmt: skip


@pytest.fixture(autouse=True)
def _no_fsync(monkeypatch):
    """A killed process loses nothing that it wrote; only a machine that loses power needs fsync, and disks are slow."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def paid(path) -> list[str]:
    return path.read_text().split() if path.exists() else []


def test_ten_rounds_fail_recover_regress_and_freeze(tmp_path):
    provider = ListProvider(TEN, tmp_path / "paid")
    done = machine(tmp_path / "t", provider).run()
    assert [attempt.status for _, attempt in done.attempts("triton")] == [
        Status.COMPILE_ERROR, Status.WRONG, Status.VALID, Status.NO_CODE, Status.VALID, Status.VALID, Status.TIMEOUT,
        Status.VIOLATION, Status.VALID, Status.VALID,
    ]  # fmt: skip
    assert done.end is End.FROZEN
    assert done.frozen == {"triton": 9}  # 8 / 10 µs is 80 % of the roofline
    assert done.best("triton")[0] == 9
    assert done.tokens == Amount(10 * 1500.0, True)
    assert done.money.value == pytest.approx(10 * (1000 * 2 + 500 * 10) / 1e6)


def test_a_frozen_backend_is_not_asked_for_again(tmp_path):
    cute = block("VALID 9", "cutile", KERNEL.replace("{note}", "VALID 9").replace("triton", "tri"))
    honest = """\
import cuda.tile as ct
import torch


@ct.kernel
def copy(x, y, TILE: ct.Constant[int]):
    ct.store(y, (ct.bid(0),), ct.load(x, (ct.bid(0),), (TILE,)))


def run(x):
    # VALID 9
    y = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (1,), copy, (x, y, 1024))
    return y
"""
    replies = [block("VALID 30") + block("", "cutile", honest), block("VALID 20"), block("VALID 10")]
    provider = ListProvider(replies, tmp_path / "paid")
    done = machine(tmp_path / "t", provider, backends=("triton", "cutile")).run()
    assert [each.backends for each in done.rounds] == [("triton", "cutile"), ("triton",), ("triton",)]
    assert done.frozen == {"cutile": 0, "triton": 2}
    assert "frozen: ['cutile']" in (tmp_path / "t" / "round_01" / "prompt.md").read_text()
    assert cute  # the same kernel under another import would be a violation: see test_llm_compliance.py


def test_rounds_end_without_a_freeze(tmp_path):
    protocol = replace(PUBLISHED, rounds=3, freeze_at=None)
    done = machine(tmp_path / "t", ListProvider([block("VALID 1")] * 3, tmp_path / "paid"), protocol=protocol).run()
    assert (done.end, len(done.rounds)) == (End.ROUNDS, 3)


def test_what_needs_review_passes_and_does_not_count(tmp_path):
    source = KERNEL.replace("{note}", "VALID 5").replace(
        "y = torch.empty_like(x)", "y = torch.empty_like(x); torch.cuda.synchronize()"
    )
    protocol = replace(PUBLISHED, rounds=1)
    done = machine(tmp_path / "t", ListProvider([block("", source=source)], tmp_path / "paid"), protocol=protocol).run()
    attempt = done.rounds[0].attempts["triton"]
    assert (attempt.status, attempt.verdict) == (Status.NEEDS_REVIEW, "needs review")
    assert done.best("triton") is None
    assert done.frozen == {}


def forked(body) -> int:
    """Run `body` in a forked process; return its exit status, negative for a signal."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            body()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def run_and_die(folder, provider, after: int, when: str) -> None:
    """Run, and die after so many steps; `when` = "inside" dies before the step's line is in the journal."""
    steps = 0

    def count(event) -> None:
        nonlocal steps
        steps += 1
        if steps == after and when == "between":
            os.kill(os.getpid(), signal.SIGKILL)

    if when == "inside":
        original = Archive.record

        def dying(self, event, *arguments, **values):
            if steps + 1 == after and event in (*STEPS, "end"):
                os.kill(os.getpid(), signal.SIGKILL)
            return original(self, event, *arguments, **values)

        Archive.record = dying
    machine(folder, provider, after_step=count).run()


@pytest.mark.parametrize("when", ["between", "inside"])
def test_a_kill_at_any_step_costs_no_reply_twice(tmp_path, when):
    two = [block("WRONG"), block("VALID 10")]
    undisturbed = machine(tmp_path / "undisturbed", ListProvider(two, tmp_path / "paid0"))
    wanted = undisturbed.run()
    steps = sum(entry.event in (*STEPS, "end") for entry in undisturbed.archive.entries)
    assert steps == 2 * len(STEPS) + 1
    for after in range(1, steps + 1):
        folder, count = tmp_path / f"{when}{after}", tmp_path / f"paid-{when}{after}"
        provider = ListProvider(two, count)
        assert forked(partial(run_and_die, folder, provider, after, when)) == -signal.SIGKILL
        resumed = machine(folder, provider)
        done = resumed.run()
        # Inside the step that keeps a reply the file is on disk already, and is adopted.
        assert paid(count) == ["0", "1"], after
        assert done.end is wanted.end
        assert [attempt.status for _, attempt in done.attempts("triton")] == [Status.WRONG, Status.VALID]
        lost = sum(entry.event == "lost" for entry in resumed.archive.entries)
        assert lost == (when == "between" and (after - 1) % len(STEPS) == 1)
        assert done.tokens.complete == (lost == 0)
        assert done.tokens.value == wanted.tokens.value


def test_a_reply_that_may_have_been_lost_makes_the_totals_lower_bounds(tmp_path):
    provider = ListProvider([block("VALID 1")], tmp_path / "paid")
    forked(partial(run_and_die, tmp_path / "t", provider, 2, "between"))  # after "sent"
    done = machine(tmp_path / "t", provider, protocol=replace(PUBLISHED, rounds=1)).run()
    assert done.rounds[0].lost == 1
    assert str(done.tokens) == "≥ 1,500"
    assert not done.money.complete


class FailingProvider(ListProvider):
    def __init__(self, *arguments, failures, **values):
        super().__init__(*arguments, **values)
        self.failures = failures

    def send(self, request, progress):
        if self.failures:
            raise self.failures.pop(0)
        return super().send(request, progress)


def test_a_failed_attempt_is_on_record_and_the_next_one_succeeds(tmp_path):
    failures = [ProviderError("HTTP 429", retry=True, after_s=0.0)]
    provider = FailingProvider([block("VALID 1")], tmp_path / "paid", failures=failures)
    one = machine(tmp_path / "t", provider, protocol=replace(PUBLISHED, rounds=1))
    done = one.run()
    assert [entry.event for entry in one.archive.entries][1:6] == ["prompt", "sent", "attempt", "sent", "response"]
    assert done.tokens.complete  # a refusal with 429 costs nothing


def test_a_provider_that_fails_for_good_leaves_a_trajectory_that_can_go_on(tmp_path):
    failures = [ProviderError("HTTP 401: no", retry=False)]
    provider = FailingProvider(TEN, tmp_path / "paid", failures=failures)
    with pytest.raises(ProviderError, match="401"):
        machine(tmp_path / "t", provider).run()
    assert read_trajectory(Archive.open(tmp_path / "t")).end is None
    assert machine(tmp_path / "t", provider).run().end is End.FROZEN
    assert len(paid(tmp_path / "paid")) == 10


def test_a_graceful_stop_finishes_the_step_and_the_run_goes_on_later(tmp_path):
    provider, seen = ListProvider(TEN, tmp_path / "paid"), []
    with pytest.raises(Stopped):
        machine(tmp_path / "t", provider, after_step=seen.append, stopped=lambda: "response" in seen).run()
    assert seen == ["prompt", "sent", "response"]
    assert machine(tmp_path / "t", provider).run().end is End.FROZEN
    assert len(paid(tmp_path / "paid")) == 10


@pytest.mark.parametrize(
    ("budget", "rounds"),
    [
        # The first prompt has 472 bytes and counts as 472 + 64 tokens at most, each later one by the ratio that was seen.
        (Budget(tokens=1000 + 32768), 1),
        (Budget(tokens=100), 0),
        (Budget(money_usd=0.37), None),
        (Budget(rounds=4), 4),
        (Budget(wall_s=0.0), None),
    ],
)  # fmt: skip
def test_a_budget_is_never_exceeded(tmp_path, budget, rounds):
    def budgets(trajectory, worst):
        return exceeded(budget, [trajectory], worst, "budget")

    done = machine(tmp_path / "t", ListProvider(TEN, tmp_path / "paid"), budgets=budgets).run()
    replies = len(paid(tmp_path / "paid"))
    assert rounds is None or replies == rounds
    if budget.tokens is not None:
        assert done.tokens.value <= budget.tokens
    if budget.money_usd is not None:
        assert replies > 0
        assert done.money.value + PRICE.output * 32768 / 1e6 + 0.002 > budget.money_usd >= done.money.value
    if replies < 10:
        assert done.end is End.BUDGET
        assert done.end_reason.startswith("budget.")


def test_a_larger_budget_lets_a_trajectory_go_on(tmp_path):
    provider = ListProvider(TEN, tmp_path / "paid")

    def limited(rounds):
        return machine(tmp_path / "t", provider, budgets=lambda t, w: exceeded(Budget(rounds=rounds), [t], w, "budget"))

    assert limited(2).run().end is End.BUDGET
    entries = len(limited(2).archive.entries)
    assert limited(2).run().end is End.BUDGET
    assert len(limited(2).archive.entries) == entries
    assert limited(20).run().end is End.FROZEN
    assert len(paid(tmp_path / "paid")) == 10


def test_lost_replies_count_against_the_budget(tmp_path):
    failures = [ProviderError("broke off", retry=True, may_cost=True, after_s=0.0)]
    provider = FailingProvider(TEN, tmp_path / "paid", failures=failures)
    budget = Budget(tokens=40_000)
    done = machine(tmp_path / "t", provider, budgets=lambda t, w: exceeded(budget, [t], w, "budget")).run()
    assert done.end is End.BUDGET  # the attempt that broke off may have used 33,000 of them
    assert paid(tmp_path / "paid") == []


def test_a_budget_of_money_needs_a_price():
    with pytest.raises(RequestError, match="price of 'm'"):
        check_priced(Budget(money_usd=1.0), None, "m")
    check_priced(Budget(money_usd=1.0), PRICE, "m")


def test_unknown_usage_keeps_the_totals_honest(tmp_path):
    provider = ListProvider([block("VALID 1")], tmp_path / "paid", usage=Usage(output_tokens=10))
    done = machine(tmp_path / "t", provider, protocol=replace(PUBLISHED, rounds=1)).run()
    assert done.tokens == Amount(10.0, False)


@pytest.mark.parametrize(
    ("text", "finish", "status"),
    [
        (block("x"), "stop", None),
        ("```python\n" + KERNEL + "```", "stop", None),  # a single file may go without a title
        ("```python impl_triton.py\n" + KERNEL + "```", "stop", None),
        ("Sorry.", "stop", Status.NO_CODE),
        ("", "refusal", Status.NO_CODE),
        ("Let me think", "length", Status.TRUNCATED),
        ("`impl_triton.py`\n```python\n" + KERNEL[:-20], "length", Status.TRUNCATED),
        ("`impl_triton.py`\n```python\ndef run(:\n```", "stop", Status.MALFORMED),
        ("`impl_triton.py`\n```python\nx = 1\n```", "stop", Status.MALFORMED),
        (block("x") + block("x"), "stop", Status.MALFORMED),
    ],
)  # fmt: skip
def test_replies_are_read_as_the_format_says(text, finish, status):
    found = candidates_in(text, finish, ["triton"])["triton"]
    assert found.problem is status
    assert (found.source is not None and "def run" in found.source) or status is not None


def test_a_complete_block_of_a_cut_reply_is_still_judged():
    text = block("x") + "`impl_cutile.py`\n```python\nimport"
    found = candidates_in(text, "length", ["triton", "cutile"])
    assert found["triton"].problem is None
    assert found["cutile"].problem is Status.TRUNCATED


def test_the_archive_refuses_what_was_changed(tmp_path):
    machine(tmp_path / "t", ListProvider(TEN, tmp_path / "paid")).run()
    response = tmp_path / "t" / "round_03" / "response.json"
    assert response.stat().st_mode & 0o222 == 0
    with pytest.raises(ArchiveError, match="cannot be changed"):
        Archive.open(tmp_path / "t").write("round_03/response.json", "better")
    content = response.read_text()
    response.chmod(0o644)
    response.write_text(content.replace("no code", "my code"))
    with pytest.raises(ArchiveError, match="was changed"):
        Archive.open(tmp_path / "t")
    response.write_text(content)
    journal = tmp_path / "t" / "journal.jsonl"
    lines = journal.read_text().splitlines()
    journal.write_text("\n".join(lines[:5] + lines[6:]) + "\n")
    with pytest.raises(ArchiveError, match="does not follow"):
        Archive.open(tmp_path / "t")


def test_a_torn_line_is_set_aside(tmp_path):
    one = machine(tmp_path / "t", ListProvider(TEN, tmp_path / "paid"))
    one.step(read_trajectory(one.archive))
    with (tmp_path / "t" / "journal.jsonl").open("a") as journal:
        journal.write('{"event": "sent", "rou')
    done = machine(tmp_path / "t", ListProvider(TEN, tmp_path / "paid")).run()
    assert done.end is End.FROZEN
    assert Archive.open(tmp_path / "t").torn == 1


def test_the_evaluator_judges_only_what_may_run(tmp_path):
    evaluator = NotedEvaluator()
    machine(tmp_path / "t", ListProvider(TEN, tmp_path / "paid"), evaluator=evaluator).run()
    assert len(evaluator.evaluated) == 8  # neither the round without code nor the violation
