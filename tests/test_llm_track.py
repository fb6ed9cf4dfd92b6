"""The whole track on a CPU: ten scripted rounds through the walls and the harness, report, export, replay; no network."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from llm_machine import KERNEL, NotedEvaluator, block, machine
from llm_server import Behaviour, serving

from tilebench_core.cli import main
from tilebench_core.llm.archive import digest
from tilebench_core.llm.metrics import efficiency_over_budget, matched_ratio, results_of, standings
from tilebench_core.llm.provider import ProviderSettings
from tilebench_core.llm.providers.openai_compatible import OpenAICompatible
from tilebench_core.llm.reply import candidates_in
from tilebench_core.llm.run import trajectories_of
from tilebench_core.llm.status import End, Status
from tilebench_core.llm.usage import Amount

DEMO = Path(__file__).parent.parent / "docs" / "llm_demo" / "replies.yaml"
N = 20_000
PRICE = "{input: 2.0, cached_input: 0.5, output: 10.0}"
TIMES_US = {2: 400.0, 4: 50.0, 5: 100.0, 8: 25.0, 9: 12.5}  # by round, from 0; a device of this test
ROOFLINE_US, BASELINE_US = 11.0, 20.0

FAST = [
    "operator=vector_add", "backend=triton", "dtype=fp32", "device=cpu", "protocol=published",
    f"operators.vector_add.case_grid.n=[{N}]", "model=scripted", f"model.options.script={DEMO}",
]  # fmt: skip


@pytest.fixture(scope="module")
def demo(tmp_path_factory) -> Path:
    """The demonstration, run once: its results folder."""
    results = tmp_path_factory.mktemp("results")
    replies = yaml.safe_load(DEMO.read_text())["replies"]
    rows = []
    for number, time_us in TIMES_US.items():
        candidate = candidates_in(replies[number]["text"], replies[number]["finish"], ["triton"])["triton"]
        rows.append({
            "source_sha256": digest(candidate.source), "operator": "vector_add", "backend": "triton", "dtype": "fp32",
            "params": {"n": N}, "median_us": time_us, "roofline_us": ROOFLINE_US, "baseline_us": BASELINE_US,
        })  # fmt: skip
    (results / "times.json").write_text(json.dumps({"device": "a device of the test", "times": rows}))
    status = main([
        "llm", "run", *FAST, f"results_dir={results}", "campaign=demo", f"times_from={results / 'times.json'}", f"model.price={PRICE}",
    ])  # fmt: skip
    assert status == 0
    return results


@pytest.fixture(scope="module")
def trajectory(demo):
    ((_, found),) = trajectories_of(demo / "demo")
    return found


def test_ten_rounds_end_as_they_should(trajectory):
    assert [attempt.status for _, attempt in trajectory.attempts("triton")] == [
        Status.LAUNCH_ERROR, Status.WRONG, Status.VALID, Status.NO_CODE, Status.VALID, Status.VALID, Status.VIOLATION,
        Status.TRUNCATED, Status.VALID, Status.VALID,
    ]  # fmt: skip
    assert (trajectory.end, trajectory.frozen) == (End.FROZEN, {"triton": 9})
    shares = [attempt.lowest_share for _, attempt in trajectory.attempts("triton") if attempt.lowest_share]
    assert shares == pytest.approx([0.0275, 0.22, 0.11, 0.44, 0.88])  # a regression in the third, and recovery
    assert trajectory.best("triton")[0] == 9


def test_the_figures_equal_a_computation_by_hand(demo, trajectory):
    # Input 101,000 of which 24,000 were cached; output 43,568, the reasoning inside it.
    inputs = 9000 + 9700 + 9900 + 10100 + 10200 + 10400 + 10300 + 10300 + 10500 + 10600
    cached, outputs = 6 * 4000, 1500 + 1200 + 1300 + 300 + 1400 + 1100 + 900 + 32768 + 1600 + 1500
    assert (inputs, outputs) == (101_000, 43_568)
    (result,) = results_of([trajectory])
    assert result.tokens == Amount(float(inputs + cached + outputs), True)
    assert result.speedup == pytest.approx(20.0 / 12.5)
    assert result.per_mtoken == pytest.approx(1.6 / (168_568 / 1e6))
    assert result.money.value == pytest.approx((101_000 * 2 + 24_000 * 0.5 + 43_568 * 10) / 1e6)
    assert result.efficiency == pytest.approx(0.88)
    (standing,) = standings([result])
    assert (standing.passed, standing.operators, standing.unknown) == (1, 1, 0)
    points = efficiency_over_budget([trajectory], "triton", "tokens")
    assert points[0].mean_efficiency == 0.0
    assert points[-1].budget == 168_568
    assert (
        points[4].mean_efficiency == points[5].mean_efficiency == pytest.approx(0.22)
    )  # the regression does not count
    assert main(["llm", "report", "demo", "--results-dir", str(demo)]) == 0
    with (demo / "demo" / "llm-report" / "results.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert float(row["tokens"]) == 168_568
    assert float(row["per_mtoken"]) == pytest.approx(1.6 / 0.168568)
    with (demo / "demo" / "llm-report" / "rounds.csv").open() as file:
        rounds = list(csv.DictReader(file))
    assert [float(row["tokens_of_round"]) for row in rounds][:3] == [10_500, 10_900, 11_200]
    assert {row["time_source"] for row in rounds} == {"", "recorded"}
    page = (demo / "demo" / "llm-report" / "report.html").read_text()
    assert "a device of the test" in page
    assert page.count("<svg") == 4
    assert "frozen" in (demo / "demo" / "llm-report" / "report.md").read_text()


def test_every_prompt_holds_what_its_round_may_know(demo, trajectory):
    (folder,) = (demo / "demo" / "llm").iterdir()
    first, third, last = ((folder / f"round_{n:02d}" / "prompt.md").read_text() for n in (0, 2, 9))
    order = [
        "# Task",
        "The contract of a candidate",
        "# API reference",
        "# Operator",
        "# config.yaml",
        "# The operator in PyTorch",
        "# Output format",
    ]
    assert [first.find(word) for word in order] == sorted(first.find(word) for word in order)
    assert -1 not in [first.find(word) for word in order]
    assert "round 3 of 10" in third
    assert "WRONG" in third
    assert "tl.add_" not in third  # the last version is shown, not the one before
    assert "your best clean version (round 5)" in "".join((folder / "round_06" / "prompt.md").read_text())
    assert "| 9 | triton | VALID | 44.0 % | 0.80 × |" in last
    request = json.loads((folder / "round_00" / "request.json").read_text())
    assert request["prompt_sha256"] == digest(first)
    feedback = (folder / "round_00" / "feedback.md").read_text()
    assert "AttributeError" in feedback
    assert str(Path.home()) not in feedback


def test_the_same_command_again_sends_nothing_and_another_checker_is_refused(demo, capsys, monkeypatch):
    command = ["llm", "run", *FAST, f"results_dir={demo}", "campaign=demo", f"times_from={demo / 'times.json'}"]
    before = sorted((demo / "demo" / "llm").rglob("*"))
    assert main([*command, f"model.price={PRICE}"]) == 0
    assert sorted((demo / "demo" / "llm").rglob("*")) == before
    assert main([*command, f"model.price={PRICE}", "timing=quick"]) == 2
    assert "another timing and device" in capsys.readouterr().err


def test_the_archive_replays_without_network_and_the_times_are_found_again(demo):
    command = [
        *FAST[:6], "model=replay", f"model.options.archive={demo / 'demo'}", f"times_from={demo / 'demo'}", f"results_dir={demo}",
        "campaign=again", "budget.rounds=1",
    ]  # fmt: skip
    assert main(["llm", "run", *command]) == 0
    ((_, again),) = trajectories_of(demo / "again")
    assert again.end is End.BUDGET
    assert again.rounds[0].attempts["triton"].status is Status.LAUNCH_ERROR


def test_the_export_is_a_provider_like_any_other(demo, tmp_path, capsys):
    assert main(["llm", "export", "demo", "--results-dir", str(demo), "--into", str(tmp_path)]) == 0
    root = tmp_path / "tilebench-llm-scripted"
    assert f"pip install {root}" in capsys.readouterr().out
    provenance = json.loads((root / "src" / "tilebench_llm_scripted" / "provenance.json").read_text())
    assert [(row["operator"], row["backend"], row["round"]) for row in provenance] == [("vector_add", "triton", 9)]
    site = tmp_path / "site"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index",
         "--target", str(site), str(root)], check=True, timeout=120,
    )  # fmt: skip
    code = (
        "from tilebench_core.registry import installed; r = installed();"
        "o = r.operator('vector_add'); print(sorted(k.provider.name for k in r.kernels_for(o, 'triton')));"
        "k = next(k for k in r.kernels_for(o, 'triton') if 'llm' in k.provider.name).load(); import torch;"
        "x = torch.ones(5000); assert torch.equal(k.run(x, x), x + x)"
    )
    environment = {**os.environ, "PYTHONPATH": str(site), "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=environment)
    assert done.stdout == "['tilebench-llm-scripted', 'tilebench-operators']\n", done.stderr
    assert main(["llm", "export", "demo", "--results-dir", str(demo), "--into", str(tmp_path)]) == 2  # it exists


def test_mlflow_shows_the_rounds(demo):
    from tilebench_core.tracking import TrackingOptions
    from tilebench_core.tracking.llm import EXPERIMENT, sync_llm

    assert "1 runs sent" in sync_llm(demo / "demo", TrackingOptions())
    assert "0 runs sent" in sync_llm(demo / "demo", TrackingOptions())
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{demo / 'mlflow.db'}")
    (run,) = client.search_runs([client.get_experiment_by_name(EXPERIMENT).experiment_id])
    assert run.data.metrics["best_speedup"] == pytest.approx(1.6)
    history = client.get_metric_history(run.info.run_id, "lowest_share")
    assert sorted(metric.step for metric in history) == [2, 4, 5, 8, 9]


def test_ten_rounds_against_a_server_that_is_good_wrong_malformed_truncated_slow_rate_limited_and_dying(tmp_path):
    usage = {"prompt_tokens": 100, "completion_tokens": 50}
    behaviours = [
        Behaviour(text=block("VALID 40")), Behaviour(text=block("WRONG")), Behaviour(text="```python\ndef run(:\n```"),
        Behaviour(text=block("VALID 30")[:300], finish="length"),
        Behaviour(text=block("VALID 25"), delay_s=0.05),
        Behaviour(status=429, headers={"Retry-After": "0.2"}), Behaviour(text=block("VALID 22")),
        Behaviour(text=block("VALID 21"), die_after=1), Behaviour(text=block("VALID 20")),
        Behaviour(text=block("", source=KERNEL.replace("return y", "return x @ y"))),
        Behaviour(status=500), Behaviour(text=block("TIMEOUT")), Behaviour(text=block("VALID 16"), usage=None),
    ]  # fmt: skip
    assert usage == behaviours[0].usage
    with serving(*behaviours) as server:
        provider = OpenAICompatible(ProviderSettings(base_url=f"{server.url}/v1", options={"needs_key": False}))
        started = time.monotonic()
        done = machine(tmp_path / "t", provider, evaluator=NotedEvaluator()).run()
    assert [attempt.status for _, attempt in done.attempts("triton")] == [
        Status.VALID, Status.WRONG, Status.MALFORMED, Status.TRUNCATED, Status.VALID, Status.VALID, Status.VALID, Status.VIOLATION,
        Status.TIMEOUT, Status.VALID,
    ]  # fmt: skip
    assert len(server.requests) == len(behaviours)
    assert server.times[6] - server.times[5] >= 0.2
    assert time.monotonic() - started < 60
    assert done.end is End.ROUNDS
    assert [each.lost for each in done.rounds] == [0, 0, 0, 0, 0, 0, 1, 0, 0, 0]
    assert done.tokens == Amount(9 * 150.0, False)  # one reply was lost and one endpoint told nothing


def test_joint_tokens_are_read_in_both_ways(tmp_path):
    from llm_machine import ListProvider

    cute = (
        "import cuda.tile as ct\nimport torch\n\n\n@ct.kernel\ndef k(x):\n    pass\n\n\n"
        "def run(x):\n    # VALID 4\n"
        "    ct.launch(torch.cuda.current_stream(), (1,), k, (x,))\n"
    )
    replies = [block("VALID 40") + block("", "cutile", cute), block("VALID 10")]
    done = machine(tmp_path / "t", ListProvider(replies, tmp_path / "paid"), backends=("cutile", "triton")).run()
    cutile, triton = results_of([done])
    assert (cutile.tokens.value, cutile.tokens_share.value) == (1500.0, 750.0)
    assert (triton.tokens.value, triton.tokens_share.value) == (3000.0, 2250.0)
    assert triton.per_mtoken == pytest.approx(2.0 / 0.003)
    assert triton.per_mtoken_share == pytest.approx(2.0 / 0.00225)
    assert matched_ratio([cutile, triton], "m", "published", "cutile", "triton") == (pytest.approx(5.0 / 2.0), 1)


def test_check_prompt_and_wrong_requests(tmp_path, capsys):
    good, bad = tmp_path / "impl_triton.py", tmp_path / "bad.py"
    good.write_text(KERNEL)
    bad.write_text(KERNEL.replace("return y", "return torch.relu(y)"))
    assert main(["llm", "check", str(good)]) == 0
    assert main(["llm", "check", str(bad), "--backend", "triton"]) == 1
    assert "uses torch.relu in host code (delegation)" in capsys.readouterr().out
    assert main(["llm", "prompt", "operator=softmax", "backend=triton", "device=cpu", "dtype=fp16"]) == 0
    prompt = capsys.readouterr().out
    assert "cols: 512, 1024, …, 10240 (20 values, in steps of 512)" in prompt
    assert "impl_triton.py" in prompt
    for wrong in (
        ["llm", "rn"],
        ["llm", "run", "operator=softmax"],
        ["llm", "report", "nothing"],
        ["llm", "check", "no-such-file"],
    ):
        assert main(wrong) == 2
    assert (
        main(["llm", "run", "operator=softmax", "backend=torch", "model=scripted", f"model.options.script={DEMO}"]) == 2
    )
    assert "no compliance rules for backend 'torch'" in capsys.readouterr().err


def test_the_fair_protocol_tells_no_score_that_is_also_the_metric():
    from tilebench_core.compose import conf_dir
    from tilebench_core.llm.attempts import Attempt, CaseResult
    from tilebench_core.llm.prompts import Prompter
    from tilebench_core.llm.protocol import PromptParts, Protocol
    from tilebench_core.operator_config import load_yaml
    from tilebench_core.registry import installed

    registry = installed()
    operator = registry.operator("softmax")

    def prompter(name: str) -> Prompter:
        values = load_yaml(conf_dir() / "llm" / "protocol" / f"{name}.yaml")
        protocol = Protocol(**{**values, "accept": tuple(values["accept"])})
        cases = operator.config.cases("fp16")
        return Prompter(registry, operator, ("triton",), ("fp16",), cases, protocol, PromptParts(guide=False), "a GPU")

    cases = tuple(
        CaseResult(dtype="fp16", params={"rows": 2048, "cols": 512 * n}, kind="grid", outcome="PASSED" if n < 20 else "WRONG",
                   reason=None if n < 20 else "first run: off by one", median_us=10.0, roofline_us=7.77, baseline_us=33.3,
                   config={"BLOCK": 1024})
        for n in range(1, 21)
    )  # fmt: skip
    wrong = Attempt(backend="triton", status=Status.WRONG, reason="off", diagnostic="Traceback", cases=cases)
    valid = Attempt(backend="triton", status=Status.VALID, cases=cases[:19])
    fair, published = prompter("fair"), prompter("published")
    text = fair.feedback({"triton": wrong}, {}) + fair.feedback({"triton": valid}, {})
    assert "valid on 19 of 20 cases" in text
    assert "first failing case: fp16 rows=2048 cols=10240: WRONG: first run: off by one" in text
    assert "geometric mean runtime: 10.00 µs" in text
    assert not any(word in text for word in ("roofline", "77.7", "3.33", "PyTorch", "BLOCK"))
    text = published.feedback({"triton": valid}, {})
    assert all(word in text for word in ("77.7 % of the roofline", "3.33 × PyTorch", "configuration {'BLOCK': 1024}"))
    assert "bytes_expr" in published.initial(["triton"])
    assert "bytes_expr" not in fair.initial(["triton"])
    assert fair.fingerprint() != published.fingerprint()


def test_a_sweep_runs_every_condition_into_one_campaign(tmp_path):
    status = main(
        ["llm", "run", "-m", *FAST, f"results_dir={tmp_path}", "condition=one,two", "budget.rounds=0", "campaign=sweep"]
    )
    assert status == 0
    found = [trajectory for _, trajectory in trajectories_of(tmp_path / "sweep")]
    assert [(t.key["condition"], t.end) for t in found] == [("one", End.BUDGET), ("two", End.BUDGET)]


def test_a_signal_stops_gracefully(tmp_path):
    """SIGINT while a reply is slow: the step ends, the exit status says so, and what came is kept."""
    with serving(Behaviour(text="nothing " * 400, delay_s=0.3)) as server:
        command = [
            sys.executable, "-m", "tilebench_core.cli", "llm", "run", *FAST[:6], "model=openai_compatible", "model.name=slow",
            f"model.base_url={server.url}/v1", f"results_dir={tmp_path}", "campaign=stopped", "isolation.mode=namespaces",
        ]  # fmt: skip
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 90
        while not server.requests and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "the same command goes on from there" in errors
    ((_, kept),) = trajectories_of(tmp_path / "stopped")
    assert kept.rounds[0].usage is None
    assert list((tmp_path / "stopped").rglob("response.json"))
