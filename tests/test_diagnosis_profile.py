"""Profiling against a stand-in for Nsight Compute: what is asked for, what is believed, and what every failure says."""

from __future__ import annotations

import itertools
import sys
from dataclasses import replace

import pytest
from fake_ncu import calls, install_fake_ncu, tell
from synthetic import Shape, synthetic_records, write_campaign

from tilebench_core.device import CPU, Device
from tilebench_core.diagnosis.capture import DRAIN_RANGE, RUN_RANGE
from tilebench_core.diagnosis.metrics import METRICS, OPCODES, STALL_PREFIX, metric_arguments
from tilebench_core.diagnosis.ncu import NcuFailed, absent_metrics, explain, find_ncu, ncu_command
from tilebench_core.diagnosis.profiles import Expected, Launch, Profile, profile_from_json, profile_to_json
from tilebench_core.diagnosis.profiling import Profiler
from tilebench_core.diagnosis.selection import job_of, largest_records
from tilebench_core.diagnosis.store import keep_profile, kept_profiles, tracked_metrics
from tilebench_core.diagnosis.tools import ToolMissing
from tilebench_core.jobs import worker_environment
from tilebench_core.registry import installed

VALUES = {
    "gpu__time_duration.sum": 1000.0, "smsp__inst_executed.sum": 500.0, "dram__bytes_read.sum": 6e6,
    "dram__bytes_write.sum": 2e6, "launch__waves_per_multiprocessor": 1.5,
    OPCODES: {"FADD": 100, "LDG": 40}, f"{STALL_PREFIX}long_scoreboard": {"4112": 30, "4128": 10},
    f"{STALL_PREFIX}selected": {"4112": 5}, f"{STALL_PREFIX}wait_not_issued": {"4112": 99},
}  # fmt: skip


@pytest.fixture
def ncu(tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_NCU", "")  # set by `tell`, restored afterwards
    tell(tmp_path)
    return find_ncu(str(install_fake_ncu(tmp_path / "nsight")))


@pytest.fixture(scope="module")
def jobs():
    records = synthetic_records(Shape(operators=1, cases=2, trouble=False))
    chosen = [r for key, r in largest_records(records).items() if key[1] == "fp16" and not key[2].startswith("torch")]
    return [job_of(record, {"metrics": "lean", "replay": "application"}) for record in chosen]


def expected_for(job) -> Expected:
    kernels = ("fill_kernel", f"{job.backend}_kernel", f"{job.backend}_kernel")
    return Expected(kernels=kernels, own=(job.backend,), drain=("reduce_kernel",), device="GPU", others={"memset": 1})


def actions_for(job, count: int = 2) -> list[dict]:
    run = [{"name": f"{job.backend}_kernel", "ranges": [f"{RUN_RANGE}{job.key}"], "metrics": VALUES}] * count
    drain = {"name": "reduce_kernel", "ranges": [f"{DRAIN_RANGE}{job.key}"], "metrics": {"dram__bytes_write.sum": 1e6}}
    return [*run, drain]


class Traced(Profiler):
    """The activity trace needs a GPU: here it is told."""

    def _trace(self, jobs):
        return {job: expected_for(job) for job in jobs}


@pytest.fixture
def profiler(ncu, tmp_path):
    lines: list[str] = []
    made = Traced(ncu=ncu, folder=tmp_path / "diagnosis", device="cuda:0", environment={}, limit_s=5, say=lines.append)
    made.lines = lines
    return made


def test_a_capture_whose_kernels_are_those_that_were_traced_is_verified(profiler, jobs, tmp_path):
    tell(tmp_path, actions=[action for job in jobs for action in actions_for(job)])
    profiles = profiler.run(jobs, batch=len(jobs))
    assert [profile.reason for profile in profiles] == [None, None]
    first = profiles[0]
    assert [launch.name for launch in first.launches] == ["triton_kernel", "triton_kernel"]
    assert (first.total("instructions"), first.dram_bytes) == (1000.0, 2 * 8e6 + 1e6)
    assert first.opcodes == {"FADD": 200, "LDG": 80}
    assert first.stalls == {"long_scoreboard": 80, "selected": 10}
    assert (first.auxiliary, first.others) == ({"fill_kernel": 1}, {"memset": 1})
    spots = first.launches[0].hottest
    assert [(spot["offset"], spot["samples"], spot["line"]) for spot in spots] == [(16, 35, 7), (32, 10, 7)]
    assert len(calls(tmp_path)) == 1


def test_a_missing_metric_is_null_with_its_reason_and_never_zero(profiler, jobs, tmp_path):
    tell(tmp_path, actions=[action for job in jobs[:1] for action in actions_for(job)])
    (profile,) = profiler.run(jobs[:1], batch=1)
    launch = profile.launches[0]
    assert launch.values["l2_hit_pct"] is None
    assert launch.missing["l2_hit_pct"] == "lts__t_sector_hit_rate.pct: not in the report"
    assert profile.total("l2_hit_pct") is None
    assert set(launch.missing) == {metric.name for metric in METRICS if launch.values[metric.name] is None}
    assert profile_from_json(profile_to_json(profile)).launches[0].values == launch.values


@pytest.mark.parametrize(("count", "says"), [(1, "1 × triton_kernel"), (3, "3 × triton_kernel"), (0, "no kernel")])
def test_another_count_of_kernels_is_a_wrong_attribution(profiler, jobs, tmp_path, count, says):
    tell(tmp_path, actions=actions_for(jobs[0], count))
    (profile,) = profiler.run(jobs[:1], batch=1)
    assert not profile.verified
    assert profile.reason == f"wrong attribution: expected 2 × triton_kernel, the report holds {says}"
    assert profile.launches == ()


def test_kernels_of_another_capture_are_not_believed(profiler, jobs, tmp_path):
    other = actions_for(jobs[1])
    tell(tmp_path, actions=[{**action, "name": action["name"].replace("cutile", "triton")} for action in other])
    (profile,) = profiler.run(jobs[:1], batch=1)
    assert profile.reason.startswith("wrong attribution")


def test_a_kernel_outside_every_capture_spoils_the_report(profiler, jobs, tmp_path):
    stray = {"name": "stray_kernel", "ranges": [], "metrics": {}}
    tell(tmp_path, actions=[*actions_for(jobs[0]), stray])
    (profile,) = profiler.run(jobs[:1], batch=1)
    assert profile.reason == "the report holds kernels outside every capture: 1 × stray_kernel"


def test_a_truncated_report_is_a_failed_capture(profiler, jobs, tmp_path):
    tell(tmp_path, actions=actions_for(jobs[0]), cut=100)
    (profile,) = profiler.run(jobs[:1], batch=1)
    assert not profile.verified
    assert f"{jobs[0].key}.ncu-rep cannot be read: json.decoder.JSONDecodeError" in profile.reason


def test_an_empty_report_is_a_failed_capture(profiler, jobs, tmp_path):
    tell(tmp_path, actions=[])
    (profile,) = profiler.run(jobs[:1], batch=1)
    assert "no launch can be read from it" in profile.reason


def test_a_failing_ncu_is_charged_to_the_job_with_its_words(profiler, jobs, tmp_path):
    tell(tmp_path, prints="==PROF== Connected\n==ERROR== The application returned an error code (11).", status=11)
    (profile,) = profiler.run(jobs[:1], batch=1)
    assert profile.reason.startswith("ncu ended with status 11: The application returned an error code (11).")


def test_a_batch_that_fails_is_halved_until_the_failure_is_one_jobs(profiler, jobs, tmp_path):
    tell(tmp_path, prints="==ERROR== Broken", status=1)
    profiles = profiler.run(jobs, batch=2)
    assert [profile.verified for profile in profiles] == [False, False]
    assert len(calls(tmp_path)) == 3  # both, then each alone


class Answering(Profiler):
    """The capture program is replaced by one that writes these answers and ends."""

    answers = ""
    status = 0

    def _program(self, mode, jobs):
        _, path = super()._program(mode, jobs)
        keys = [job.key for job in jobs]
        code = "import sys; open(sys.argv[1], 'w').write(sys.argv[2]); sys.exit(int(sys.argv[3]))"
        text = self.answers.replace("KEY0", keys[0]).replace("KEY1", keys[-1])
        return [sys.executable, "-c", code, str(path), text, str(self.status)], path


def test_a_process_that_dies_while_tracing_is_charged_to_the_job_it_was_at(ncu, tmp_path, jobs):
    made = Answering(ncu=ncu, folder=tmp_path / "d", device="cuda:0", environment={}, say=lambda line: None)
    made.answers, made.status = '{"key": "KEY0", "started": true}\n', 11
    profiles = made.run(jobs, batch=2)
    assert [profile.verified for profile in profiles] == [False, False]
    assert all("ended with status 11 while this was traced" in profile.reason for profile in profiles)
    assert calls(tmp_path) == []


def test_a_job_that_cannot_be_traced_says_why_and_the_others_go_on(ncu, tmp_path, jobs):
    made = Answering(ncu=ncu, folder=tmp_path / "d", device="cuda:0", environment={}, say=lambda line: None)
    answer = '{"key": "KEY1", "kernels": ["cutile_kernel"], "others": {}, "own": [], "drain": ["r"], "device": "GPU"}'
    made.answers = '{"key": "KEY0", "error": "DeviceOutOfMemory: 80 GB"}\n' + answer + "\n{torn"
    tell(tmp_path, actions=[{"name": "cutile_kernel", "ranges": [f"{RUN_RANGE}{jobs[1].key}"], "metrics": VALUES},
                            {"name": "r", "ranges": [f"{DRAIN_RANGE}{jobs[1].key}"], "metrics": {}}])  # fmt: skip
    found = {profile.job.backend: profile for profile in made.run(jobs, batch=2)}
    assert found["triton"].reason == "DeviceOutOfMemory: 80 GB"
    assert found["cutile"].verified
    assert found["cutile"].left_bytes is None  # the drain's own counter is missing: that is not zero


def test_an_ncu_that_hangs_is_killed(profiler, jobs, tmp_path):
    tell(tmp_path, sleep_s=60)
    profiler.limit_s = 0.1
    (profile,) = profiler.run(jobs[:1], batch=1)
    assert "was killed" in profile.reason


@pytest.mark.parametrize(
    ("printed", "says"),
    [("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters", "run as root"),
     ("==ERROR== Failed to initialize the profiler: LibraryNotLoaded", "profile on another machine")],
)  # fmt: skip
def test_what_no_capture_can_survive_stops_the_run_with_its_remedy(profiler, jobs, tmp_path, printed, says):
    tell(tmp_path, prints=printed, status=1)
    with pytest.raises(NcuFailed, match=says):
        profiler.run(jobs, batch=1)
    assert len(calls(tmp_path)) == 1


def test_metrics_that_this_ncu_does_not_know_are_left_out_or_named_otherwise(profiler, jobs, tmp_path):
    tell(tmp_path, actions=actions_for(jobs[0]), unknown=["dram__bytes_read.sum", "lts__t_sector_hit_rate.pct"])
    (profile,) = profiler.run(jobs[:1], batch=1)
    assert profile.verified
    asked = calls(tmp_path)[-1][calls(tmp_path)[-1].index("--metrics") + 1].split(",")
    assert "dram__bytes_op_read.sum" in asked
    assert "lts__t_sector_hit_rate.pct" not in asked
    assert any("has no" in line for line in profiler.lines)


def test_exactly_one_call_lies_between_profiler_start_and_stop(monkeypatch):
    import contextlib
    import io
    from types import SimpleNamespace

    import torch

    from tilebench_core.diagnosis import capture

    log: list[str] = []

    def noting(word):
        return lambda *values: log.append(" ".join([word, *values]))

    profiler = SimpleNamespace(cudaProfilerStart=noting("start"), cudaProfilerStop=noting("stop"))
    monkeypatch.setattr(torch.cuda, "cudart", lambda: profiler)
    monkeypatch.setattr(torch.cuda, "synchronize", noting("wait"))
    monkeypatch.setattr(torch.cuda, "nvtx", SimpleNamespace(range_push=noting("push"), range_pop=noting("pop")))
    monkeypatch.setattr(
        capture, "_prepared", lambda job, device, compiled: contextlib.nullcontext((noting("run"), ["k"]))
    )
    cache = SimpleNamespace(evict=noting("evict"), drain=noting("drain"))
    answers = io.StringIO()
    capture._serve({"key": "abc", "job": {}}, {"device": "cuda:0", "drain": True}, cache, None, answers)
    acts = [word for word in log if word != "wait"]
    first = acts.index("start")
    assert acts[:first] == ["run"] * 3 + ["evict"]
    assert acts[first:] == ["start", "push tilebench-run:abc", "run", "pop", "stop",
                            "start", "push tilebench-drain:abc", "drain", "pop", "stop"]  # fmt: skip
    assert log[log.index("stop") - 2] == "wait"  # the device has finished before the range ends
    assert '"done": true' in answers.getvalue()


def test_names_that_begin_alike_are_told_apart():
    printed = "==ERROR== Failed to find metric regex:^lts__t_sectors(\\.(sum|avg))?$"
    assert absent_metrics(printed, ["lts__t_sectors.sum", "lts__t_sectors_op_read.sum"]) == {"lts__t_sectors.sum"}


def test_the_command_leaves_clocks_alone_and_selects_kernels_by_exact_name(ncu, tmp_path):
    command = ncu_command(ncu, ["a_kernel", "b.kernel"], ["x.sum"], tmp_path / "r.ncu-rep", "application", ["python"])
    pairs = dict(itertools.pairwise(command))
    assert pairs["--kernel-name"] == "regex:^(a_kernel|b\\.kernel)$"
    assert (pairs["--cache-control"], pairs["--clock-control"], pairs["--profile-from-start"]) == (
        "none",
        "none",
        "off",
    )
    kernel = ncu_command(ncu, ["a"], ["x.sum"], tmp_path / "r.ncu-rep", "kernel", ["python"])
    assert kernel[kernel.index("--cache-control") + 1] == "all"


def test_the_lean_set_leaves_the_throughputs_of_whole_units_out():
    assert "sm__throughput.avg.pct_of_peak_sustained_elapsed" in metric_arguments("full")
    assert "sm__throughput.avg.pct_of_peak_sustained_elapsed" not in metric_arguments("lean")
    assert len(set(metric_arguments("full"))) == len(metric_arguments("full"))


def test_an_absent_ncu_says_how_to_get_one(tmp_path):
    with pytest.raises(ToolMissing, match=r"is not at .*: install Nsight Compute"):
        find_ncu(str(tmp_path / "nowhere"))


def test_an_old_ncu_names_both_versions(ncu, tmp_path):
    tell(tmp_path, version="2022.4.1.0")
    with pytest.raises(ToolMissing, match=r"Nsight Compute 2022\.4\.1\.0 is too old, 2023\.1 is the first"):
        find_ncu(ncu.path)


def test_output_without_a_known_sign_is_told_with_its_first_error(tmp_path):
    error = explain("==PROF== hello\n==ERROR== Something new\n", 9, tmp_path / "log")
    assert (error.hopeless, "Something new" in str(error)) == (False, True)


def test_a_verified_profile_is_kept_resumed_and_shown_to_mlflow(tmp_path, jobs):
    launch = Launch(name="k", values={"instructions": 10.0, "registers": 32.0})
    failed = Profile(job=jobs[0], verified=False, reason="ncu failed")
    keep_profile(tmp_path, failed)
    assert tracked_metrics(tmp_path) == {}
    keep_profile(tmp_path, Profile(job=jobs[0], verified=True, launches=(launch,)))
    with (tmp_path / "diagnosis" / "profiles.jsonl").open("a") as file:
        file.write('{"torn')
    keep_profile(tmp_path, replace(failed, job=jobs[1]))
    kept = kept_profiles(tmp_path)
    assert {key: profile.verified for key, profile in kept.items()} == {jobs[0].key: True, jobs[1].key: False}
    job = jobs[0]
    shown = tracked_metrics(tmp_path)[job.operator, job.dtype, job.backend, job.mode]
    assert shown == {"ncu.instructions": 10.0, "ncu.registers": 32.0}


def test_a_profile_is_verified_or_says_why_not(jobs):
    with pytest.raises(Exception, match="says why"):
        Profile(job=jobs[0], verified=True)
    with pytest.raises(Exception, match="says why"):
        Profile(job=jobs[0], verified=False)


def test_another_configuration_is_another_capture(jobs):
    record = synthetic_records(Shape(operators=1, cases=1, trouble=False))[-1]
    one, two = (job_of(replace(record, config={"BLOCK": block}), {}) for block in (64, 128))
    assert one.key != two.key
    assert one.key == job_of(replace(record, config={"BLOCK": 64}, median_us=1.0), {}).key


def test_the_largest_case_is_profiled_with_its_fastest_configuration():
    records = synthetic_records(Shape(operators=1, cases=3, trouble=False))
    chosen = largest_records(records)
    assert {record.case_index for record in chosen.values()} == {2}
    triton = chosen["pointwise_00", "fp16", "triton"]
    rivals = [r.median_us for r in records if (r.dtype, r.backend, r.case_index) == ("fp16", "triton", 2)]
    assert triton.median_us == min(rivals)


def test_records_of_a_kernels_former_source_choose_nothing_for_the_present_one():
    former = [replace(r, kernel="a") for r in synthetic_records(Shape(operators=1, cases=2, trouble=False))]
    slower = [
        replace(r, kernel="b", config={"BLOCK": 1}, median_us=2 * (r.median_us or 1.0))
        for r in former
        if (r.backend, r.mode, r.dtype) == ("triton", "default", "fp16")
    ]
    chosen = largest_records([*former, *slower])
    assert chosen["pointwise_00", "fp16", "triton"].config == {"BLOCK": 1}
    assert ("pointwise_00", "fp32", "triton") not in chosen  # not measured again
    assert chosen["pointwise_00", "fp16", "cutile"].kernel == "a"


def test_another_version_of_a_kernel_is_another_capture():
    record = synthetic_records(Shape(operators=1, cases=1, trouble=False))[-1]
    keys = {job_of(replace(record, kernel=kernel), {}).key for kernel in (None, "a", "b")}
    assert len(keys) == 3


def test_a_plan_is_printed_without_a_gpu(tmp_path, capsys):
    from tilebench_core.cli import main
    from tilebench_core.registry import installed

    softmax = installed().operator("softmax")
    records = [
        replace(record, operator="softmax", params=softmax.config.largest("fp16").params, case_index=19)
        for record in synthetic_records(Shape(operators=1, cases=1, dtypes=("fp16",), trouble=False))
    ]
    write_campaign(tmp_path / "c", records)
    request = ["profile", f"campaign={tmp_path / 'c'}", "operator=softmax"]
    assert main([*request, "--plan"]) == 0
    printed = capsys.readouterr().out
    assert "2 captures wanted, 0 verified already, 2 to run" in printed
    assert "softmax fp16 triton" in printed
    assert "softmax fp16 torch" not in printed
    assert main(["profile", f"campaign={tmp_path / 'c'}", "operator=relu", "--plan"]) == 2
    assert "nothing to profile" in capsys.readouterr().err


def test_a_child_sees_no_other_gpu_than_the_one_that_is_profiled():
    second = Device(kind="cuda", name="NVIDIA H200", index=1, capability=(9, 0), uuid="GPU-second")
    environment = worker_environment(installed(), {"triton": None}, second)
    assert (second.alone.torch_name, environment["CUDA_VISIBLE_DEVICES"]) == ("cuda:0", "GPU-second")
    assert CPU.alone.torch_name == "cpu"
    assert worker_environment(installed(), {"torch": None}, CPU) == {"PYTHONUNBUFFERED": "1"}
