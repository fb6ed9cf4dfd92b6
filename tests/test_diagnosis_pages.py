"""From evidence to explanations: derived quantities, gaps, pages, experiments, the report's section, MLflow's metrics."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from synthetic import Shape, synthetic_records, write_campaign

from tilebench_core.analysis.results import load_results
from tilebench_core.cli import main
from tilebench_core.diagnosis.derived import Quantity, Side, _paths, conflict_class, derive
from tilebench_core.diagnosis.diagnose_command import _words
from tilebench_core.diagnosis.experiments import conclude, keep_experiment, kept_experiments, moved_grid, variants_of
from tilebench_core.diagnosis.gaps import largest_gaps, load_evidence
from tilebench_core.diagnosis.mechanisms import hypotheses
from tilebench_core.diagnosis.pages import write_pages
from tilebench_core.diagnosis.profiles import Launch, Profile
from tilebench_core.diagnosis.request import parse_request
from tilebench_core.diagnosis.selection import job_of, largest_records
from tilebench_core.diagnosis.store import keep_profile
from tilebench_core.errors import RequestError

RECORDS = synthetic_records(
    Shape(operators=3, cases=2, dtypes=("fp16",), trouble=False, slower=("reduction_01", "cutile", 3))
)
COUNTED = {
    "duration_ns": 1e4, "instructions": 1e6, "dram_read_bytes": 9e6, "dram_write_bytes": 1e6, "waves": 1.25,
    "global_load_requests": 1000.0, "global_load_sectors": 16000.0, "global_store_requests": 0.0, "global_store_sectors": 0.0,
    "bank_conflicts": 20.0, "shared_wavefronts": 100.0, "branch_efficiency_pct": 97.0, "occupancy_achieved_pct": 40.0,
    "occupancy_theoretical_pct": 50.0, "occupancy_limit_registers": 2.0, "occupancy_limit_shared": 3.0,
    "occupancy_limit_warps": 8.0, "local_loads": 0.0, "local_stores": 0.0,
}  # fmt: skip
HOT = {
    "offset": 32,
    "sass": "LDG.E.128 R4, [R2]",
    "samples": 50,
    "stalls": {"long_scoreboard": 45},
    "file": "/p/impl.py",
    "line": 9,
}


def profile_of(record, **changed) -> Profile:
    launch = Launch(
        name="kernel", values={**COUNTED, **changed}, missing={"l2_hit_pct": "lts: not in the report"},
        stalls={"selected": 10, "long_scoreboard": 60, "wait": 30}, hottest=[HOT],
        opcodes={"HGMMA": 10, "STS": 40, "UTMALDG": 4, "FADD": 100},
    )  # fmt: skip
    job = job_of(record, {"metrics": "lean", "replay": "application"})
    return Profile(job=job, verified=True, launches=(launch,), left_bytes=2e6, ncu="2025.3.1", device=record.device)


def inspection_of(record, **changed) -> dict:
    kernel = {
        "name": "kernel", "launches": 1, "threads": 128, "registers": 40, "static_shared_bytes": 1024,
        "dynamic_shared_bytes": 2048, "stack_bytes": 0, "barriers": 1, "code_bytes": 1000, "instructions": 60,
        "families": {"global memory": 4}, "widths": {"LDG.128": 4}, "opcodes": {"LDG.E.128": 4, "FADD": 56}, **changed,
    }  # fmt: skip
    return {
        "operator": record.operator, "dtype": record.dtype, "params": dict(record.params), "backend": record.backend,
        "provider": None, "arch": "sm_90", "config": dict(record.config), "compile_s": 1.0, "reason": None, "kernels": [kernel],
    }  # fmt: skip


@pytest.fixture(scope="module")
def winners():
    return largest_records(RECORDS)


@pytest.fixture
def campaign(tmp_path, winners):
    folder = write_campaign(tmp_path / "gaps", RECORDS)
    slow, fast = (winners["reduction_01", "fp16", backend] for backend in ("cutile", "triton"))
    keep_profile(folder, profile_of(slow, instructions=3e6, dram_read_bytes=2e7))
    keep_profile(folder, profile_of(fast))
    lines = [json.dumps(inspection_of(record)) for record in (slow, fast)]
    (folder / "diagnosis" / "inspections.jsonl").write_text("\n".join([*lines, "{torn"]) + "\n")
    code = folder / "diagnosis" / "code" / "reduction_01" / "fp16"
    code.mkdir(parents=True)
    listing = "".join(
        f"{at:05x}  {'LDG.E.128 R4, desc[UR4][R2.64]' if at == 32 else 'FADD R1, R2, R3'}\n" for at in range(0, 160, 16)
    )
    (code / "cutile.sm_90.kernel.sass").write_text(listing)
    return folder


def test_counters_and_code_of_a_kernels_former_source_are_no_evidence(tmp_path, winners):
    key = "reduction_01", "fp16", "triton"
    new = [replace(record, kernel="new") for record in RECORDS]
    folder = write_campaign(tmp_path / "changed", new)
    (folder / "diagnosis").mkdir()
    for source, counted in (("old", False), ("new", True), (None, True)):  # None: kept before records named the source
        keep_profile(folder, profile_of(replace(winners[key], kernel=source)))
        (folder / "diagnosis" / "inspections.jsonl").write_text(
            json.dumps({**inspection_of(winners[key]), "source": source}) + "\n"
        )
        evidence = load_evidence(folder, load_results(folder))
        assert (key in evidence.profiles, key in evidence.inspections) == (counted, counted)


@pytest.mark.parametrize(
    ("share", "name"), [(0.0, "none"), (0.005, "likely"), (0.05, "mild"), (0.2, "moderate"), (0.5, "severe")]
)
def test_bank_conflicts_have_classes(share, name):
    assert conflict_class(share) == name


def test_quantities_carry_what_qualifies_them(winners):
    record = replace(winners["reduction_01", "fp16", "cutile"], bytes=10e6)
    found = derive(Side(record, profile_of(record), inspection_of(record), 1.5))
    assert found["DRAM bytes over compulsory"].value == pytest.approx(1.2)
    assert found["sectors per global load"].text == "16 (128-bit accesses: 16 if adjacent)"
    assert found["sectors per global store"].text == "no plain access"
    assert found["bank-conflict share"].note == "moderate; confounded, branch efficiency 97.0 %"
    assert found["occupancy, theoretical"].note == "limited by registers"
    assert found["tail, idle share of the last wave"].value == pytest.approx(0.375)
    assert (found["matrix path"].value, found["operand path"].value) == ("WGMMA", "TMA")
    assert found["shared stores per WGMMA"].value == 4
    assert found["shared memory per block"].value == 3072
    assert found["access widths"].static
    assert found["most frequent stall"].text == "long_scoreboard (long_scoreboard 60%, wait 30% of samples)"


@pytest.mark.parametrize(
    ("opcodes", "where"),
    [
        ({"REDG.E.ADD.STRONG.GPU": 4, "LDG.E.128": 8}, "global memory"),
        ({"ATOMS.POPC.INC.32": 16, "REDG.E.ADD.STRONG.GPU": 1}, "shared memory and global memory"),
        ({"FADD": 1}, "none"),
    ],
)
def test_atomics_are_told_by_the_memory_they_work_on(opcodes, where):
    assert _paths(opcodes, "code")["atomics"].value == where


@pytest.mark.parametrize(
    ("slow", "fast", "suggested"),
    [
        ("global memory", "shared memory and global memory", True),
        ("shared memory", "global memory", False),
        ("none", "none", False),
    ],
)
def test_atomics_in_global_memory_alone_are_a_hypothesis_for_the_slower_side(slow, fast, suggested):
    found = hypotheses(
        {"atomics": Quantity(slow), "atomics (code)": Quantity(slow, static=True)},
        {"atomics (code)": Quantity(fast, static=True)},
    )
    assert [hypothesis.title for hypothesis in found] == ["atomics in global memory"] * suggested


def test_a_quantity_whose_metric_is_missing_says_why_and_is_not_zero(winners):
    record = winners["reduction_01", "fp16", "cutile"]
    found = derive(Side(record, profile_of(record, dram_read_bytes=None)))
    assert found["L2 hit rate"].text == "– (lts: not in the report)"
    assert found["DRAM bytes over compulsory"].text == "– (DRAM bytes not counted)"


def test_the_widest_gap_comes_first_and_pytorch_is_no_party():
    gaps = largest_gaps(RECORDS)
    assert gaps[0].slow.operator == "reduction_01"
    assert (gaps[0].slow.backend, gaps[0].fast.backend) == ("cutile", "triton")
    assert len(gaps) == 3
    assert not any(r.backend.startswith("torch") for gap in gaps for r in (gap.slow, gap.fast))
    assert len(largest_gaps(RECORDS, count=2)) == 2
    assert [gap.factor for gap in gaps] == sorted((gap.factor for gap in gaps), reverse=True)


def test_evidence_of_another_configuration_is_no_evidence(campaign, winners):
    evidence = load_evidence(campaign, load_results(campaign))
    record = winners["reduction_01", "fp16", "cutile"]
    assert evidence.side(record).profile is not None
    other = replace(record, config={"BLOCK": 1})
    assert (evidence.side(other).profile, evidence.side(other).inspection) == (None, None)


def test_hypotheses_rest_on_differences_and_name_what_speaks_against_them(winners):
    slow, fast = (winners["reduction_01", "fp16", backend] for backend in ("cutile", "triton"))
    found = hypotheses(derive(Side(slow, profile_of(slow, dram_read_bytes=3e7))), derive(Side(fast, profile_of(fast))))
    assert [hypothesis.title for hypothesis in found] == ["more DRAM traffic"]
    assert "2.75" not in found[0].text
    assert all(h.against and h.experiment for h in found)
    assert hypotheses(derive(Side(fast, profile_of(fast))), derive(Side(fast, profile_of(fast)))) == []


def test_pages_keep_observation_and_hypothesis_apart(campaign, winners):
    gaps = largest_gaps(RECORDS, 2)
    experiment = experiment_of(winners["reduction_01", "fp16", "cutile"])
    written = write_pages(gaps, load_evidence(campaign, load_results(campaign)), winners, [experiment], campaign / "p")
    index, page, bare = (path.read_text() for path in written)
    assert "[reduction_01 fp16: cutile and triton](reduction_01-fp16-cutile-triton.md)" in index
    for heading in (
        "## Case",
        "## Evidence",
        "## Observation",
        "## Hypothesis",
        "## Controlled experiments",
        "## Hottest",
    ):
        assert heading in page
    observation, hypothesis = page.split("## Observation")[1].split("## Hypothesis")
    assert "executes 3.00 times the instructions" in observation
    assert "Address arithmetic" not in observation
    assert "*Against it:*" in hypothesis
    assert "config.BLOCK from 1024 to 2048" in page
    assert "static: registers per thread" in page
    assert "no counters; no code" in bare
    assert "None: no quantity that was collected" in bare


def experiment_of(record):
    before, after, switch, old, new = variants_of(record.config, {}, record.backend, {"config.BLOCK": 2048})
    assert (before.config["BLOCK"], after.config["BLOCK"]) == (1024, 2048)
    profiles = [profile_of(record), profile_of(record, instructions=2e6)]
    inspections = [inspection_of(record), inspection_of(record, registers=41)]
    return conclude(record, (switch, old, new), (100.0, 150.0), profiles, inspections)


def test_an_experiment_reports_what_moved_and_only_that(winners, tmp_path):
    experiment = experiment_of(winners["reduction_01", "fp16", "cutile"])
    assert experiment.moved == ["latency", "instructions", "registers per thread"]
    assert experiment.verdict == "Latency +50.0%. Moved: instructions, registers per thread."
    rows = moved_grid(experiment).rows
    assert rows[0] == ["latency", "100 µs", "150 µs", "+50.0%"]
    assert [row[0] for row in rows if row[3]] == ["latency", "instructions", "static: registers per thread"]
    keep_experiment(tmp_path, experiment)
    keep_experiment(tmp_path, experiment)
    (kept,) = kept_experiments(tmp_path)
    assert (kept.verdict, kept.after["instructions"].value) == (experiment.verdict, 2e6)


def test_an_experiment_without_counters_says_so(winners):
    record = winners["reduction_01", "fp16", "cutile"]
    found = conclude(record, ("config.BLOCK", 1, 2), (1.0, 1.0), [None, None], [None, None])
    assert found.verdict == "Latency +0.0%. Nothing else that was collected moved. Not collected: counters."


@pytest.mark.parametrize(
    ("switches", "says"),
    [({}, "exactly one switch"), ({"config.A": 2, "config.B": 3}, "exactly one"), ({"config.C": 1}, "has A, B"),
     ({"config.A": 1}, "its value already"), ({"backends.other.x": 1}, "is on mine"), ({"backends.mine.y": 1}, "options are x")],
)  # fmt: skip
def test_an_experiment_flips_exactly_one_switch(switches, says):
    with pytest.raises(RequestError, match=says):
        variants_of({"A": 1, "B": 2}, {"x": 1}, "mine", switches)


def test_gaps_are_a_command(campaign, capsys):
    assert main(["diagnose", "gaps", f"campaign={campaign}", "count=1", "--markdown"]) == 0
    assert "| reduction_01 fp16 |" in capsys.readouterr().out
    assert main(["diagnose", "pages", f"campaign={campaign}", "count=2"]) == 0
    assert (campaign / "diagnosis" / "pages" / "reduction_01-fp16-cutile-triton.md").is_file()


def test_the_report_shows_evidence_hot_code_and_links(campaign):
    from tilebench_core.report import write_report

    written = write_report([campaign], campaign / "report", ["html", "md"])
    html = next(path for path in written if path.suffix == ".html").read_text()
    assert "Diagnosis of fp16 at its largest case" in html
    assert "cutile, kernel: hottest instructions" in html
    assert "00020      50  LDG.E.128 R4, desc[UR4][R2.64]  long_scoreboard  // impl.py:9" in html
    assert 'href="../diagnosis/code/reduction_01/fp16/cutile.sm_90.kernel.sass"' in html
    assert "### reduction_01, fp16: " in next(path for path in written if path.suffix == ".md").read_text()


def test_mlflow_shows_the_counters_of_the_series_that_was_profiled(campaign):
    from tilebench_core.tracking.series import campaign_series

    shown = {series.key: series.summary for series in campaign_series(load_results(campaign))}
    counted = [key for key, summary in shown.items() if "ncu.instructions" in summary]
    assert sorted(key.split("/")[2] for key in counted) == ["cutile", "triton"]
    assert all(key.startswith("reduction_01/fp16/") for key in counted)


def test_an_experiment_verifies_and_times_both_sides_and_keeps_what_moved(tmp_path):
    from distributions import EXAMPLE, environment, tilebench

    record = replace(
        RECORDS[0], operator="softmax", dtype="fp32", params={"rows": 64, "cols": 512}, backend="example",
        provider="tilebench-example 0.1.0", config={"ROWS": 1}, precision="fp32", mode="default",
    )  # fmt: skip
    folder = write_campaign(tmp_path / "cpu", [record])
    request = [
        "diagnose",
        "experiment",
        f"campaign={folder}",
        "operator=softmax",
        "backend=example",
        "device=cpu",
        "repeat=9",
    ]
    done = tilebench([*request, "config.ROWS=64"], environment(tmp_path / "site", EXAMPLE), tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Not collected: counters; code (NotImplementedError" in done.stdout
    (experiment,) = kept_experiments(folder / "diagnosis")
    assert experiment.title == "example: config.ROWS from 1 to 64"
    assert (
        experiment.after["latency"].value < experiment.before["latency"].value
    )  # one Python call a row, or one in all


def test_a_configuration_survives_the_command_line():
    config = {"maxnreg": None, "STAY": False, "METHOD": "chip", "num_warps": 8, "scale": 1e-06}
    asked = parse_request(_words({f"config.{name}": value for name, value in config.items()}), ["operator"])
    assert {name: value for name, (value,) in asked.config.items()} == config


def test_an_option_of_a_backend_is_flipped_in_processes_of_its_own(tmp_path, capsys):
    """A DSL reads it once, and keeps what it has compiled: without fusion each multiply-add becomes two instructions."""
    pytest.importorskip("triton")
    record = replace(
        RECORDS[0], operator="swiglu", dtype="fp32", params={"M": 8, "N": 256}, backend="triton",
        provider=None, config={"BLOCK": 256, "num_warps": 4}, precision="fp32", mode="default",
    )  # fmt: skip
    folder = write_campaign(tmp_path / "cpu", [record])
    asked = [f"campaign={folder}", "operator=swiglu", "backend=triton", "device=cpu", "repeat=1"]
    assert main(["diagnose", "experiment", *asked, "backends.triton.fp_fusion=false"]) == 0, capsys.readouterr().err
    (experiment,) = kept_experiments(folder / "diagnosis")
    counts = [side["instructions in the code"].value for side in (experiment.before, experiment.after)]
    assert counts[0] < counts[1]


def test_a_switch_that_is_not_there_is_a_wrong_request(tmp_path, capsys):
    record = replace(RECORDS[0], operator="vector_add", dtype="fp32", backend="torch", provider=None, config={})
    folder = write_campaign(tmp_path / "none", [record])
    request = ["diagnose", "experiment", f"campaign={folder}", "operator=vector_add", "backend=torch", "device=cpu"]
    assert main([*request, "config.BLOCK=2"]) == 2
    assert "the configuration has no keys" in capsys.readouterr().err
