"""MLflow is a view of the records: nothing measured is lost, whatever the store does."""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from synthetic import Shape, synthetic_records, troubled_records, write_campaign

from tilebench_core.analysis import Results, load_results
from tilebench_core.errors import ConfigError, RequestError
from tilebench_core.report.command import report_command
from tilebench_core.tracking import (
    TrackingOptions,
    known_stores,
    page_url,
    results_store,
    server_command,
    sync_campaign,
    sync_command,
    ui_command,
)
from tilebench_core.tracking.series import MAX_PARAM, campaign_series, clip

SMALL = Shape(operators=2, dtypes=("fp16",), cases=3, samples=5)


FORK = multiprocessing.get_context("fork")


def _sync_one(folder: str, uri: str) -> None:
    result = sync_campaign(Path(folder), TrackingOptions(uri=uri))
    assert result.complete, result.message


@pytest.fixture(scope="module", autouse=True)
def booting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A real MLflow server, as `tilebench ui` starts it: it boots while the tests that need none run."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder = tmp_path_factory.mktemp("served")
    process = subprocess.Popen(
        server_command(results_store(folder), port=port),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
    )
    try:
        yield f"http://127.0.0.1:{port}", process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture
def server(booting) -> tuple[str, subprocess.Popen[bytes]]:
    """The server, once it answers."""
    for _ in range(900):
        try:
            urllib.request.urlopen(f"{booting[0]}/health", timeout=1).close()
            break
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    return booting


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> tuple[TrackingOptions, list[int | None]]:
    """A new database into which eight processes wrote at once, and how they ended; two of them shared a campaign."""
    import mlflow.tracking  # noqa: F401  # once, instead of in each of the eight

    folder = tmp_path_factory.mktemp("shared")
    shape = Shape(operators=1, dtypes=("fp16",), cases=2, samples=3, backends=("torch", "triton"), trouble=False)
    folders = [write_campaign(folder / f"c{i % 7}", synthetic_records(shape)) for i in range(8)]
    options = results_store(folder)
    writers = [FORK.Process(target=_sync_one, args=(str(campaign), options.uri)) for campaign in folders]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(120)
    return options, [writer.exitcode for writer in writers]


@pytest.fixture(scope="module")
def template(shared) -> bytes:
    """An MLflow database with its tables: creating them takes longer than every test here."""
    return shared[0].database.read_bytes()


@pytest.fixture
def results(tmp_path: Path, template: bytes) -> Path:
    (tmp_path / "mlflow.db").write_bytes(template)
    return tmp_path


def store_of(results: Path) -> TrackingOptions:
    """An experiment of its own: the template's artifacts lie elsewhere."""
    return results_store(results, TrackingOptions(experiment="test"))


def client_of(options: TrackingOptions):
    from mlflow.tracking import MlflowClient

    return MlflowClient(tracking_uri=options.uri)


def runs_of(options: TrackingOptions):
    client = client_of(options)
    experiment = client.get_experiment_by_name(options.experiment)
    return client.search_runs([experiment.experiment_id], max_results=5000)


def test_importing_tracking_loads_no_mlflow():
    code = "import sys, tilebench_core.tracking; sys.exit('mlflow' in sys.modules or 'pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_campaign_becomes_a_parent_run_with_one_child_per_series(results: Path):
    folder, options = write_campaign(results / "c1", synthetic_records(SMALL)), store_of(results)
    result = sync_campaign(folder, options)
    assert result.complete
    assert result.unchanged == 0
    runs = runs_of(options)
    parents = [run for run in runs if "mlflow.parentRunId" not in run.data.tags]
    assert [run.info.run_id for run in parents] == [result.run_id]
    assert len(runs) == 1 + result.sent == 1 + 2 * 5
    assert {run.info.status for run in runs} == {"FINISHED"}
    (child,) = client_of(options).search_runs(
        [runs[0].info.experiment_id],
        "tags.operator = 'reduction_01' and tags.backend = 'triton' and tags.mode = 'tuned'",
    )
    tags, metrics = child.data.tags, child.data.metrics
    assert tags["gpu"] == "NVIDIA H200"
    assert tags["category"] == "reduction"
    assert tags["git_commit"] == "c45bc77"
    assert tags["version.triton"] == "1.2.3"
    assert metrics["geomean_speedup"] == pytest.approx(1 / (0.85 * 0.9), rel=0.02)
    assert metrics["tuning_gain"] == pytest.approx(1 / 0.9, rel=0.02)
    assert metrics["pass_rate"] == 1
    history = client_of(options).get_metric_history(child.info.run_id, "latency_us")
    expected = [
        r.median_us
        for r in synthetic_records(SMALL)
        if r.series[:3] == ("reduction_01", "fp16", "triton") and r.mode == "tuned"
    ]
    assert [(m.step, m.value) for m in sorted(history, key=lambda m: m.step)] == list(enumerate(expected))
    names = {file.path for file in client_of(options).list_artifacts(child.info.run_id)}
    assert names == {"records.jsonl", "params.json"}
    assert {"records.jsonl", "environment.json", "config.yaml"} <= {
        file.path for file in client_of(options).list_artifacts(result.run_id)
    }


def test_syncing_again_sends_only_what_is_new(results: Path):
    records, options = synthetic_records(SMALL), store_of(results)
    folder = write_campaign(results / "c1", records[:-4])
    first = sync_campaign(folder, options)
    assert sync_campaign(folder, options).sent == 0
    write_campaign(folder, records)
    second = sync_campaign(folder, options)
    assert second.run_id == first.run_id
    assert 0 < second.sent <= 4
    assert second.sent + second.unchanged == len(campaign_series_of(folder))
    assert len(runs_of(options)) == 1 + second.sent + second.unchanged  # a series that grew replaced its run


def campaign_series_of(folder: Path):
    return campaign_series(load_results(folder))


def test_failures_and_other_gpus_are_series_of_their_own(tmp_path: Path):
    folder = write_campaign(tmp_path / "c1", troubled_records())
    series = {s.key: s for s in campaign_series_of(folder)}
    assert len({s.tags["gpu"] for s in series.values()}) == 2
    missing = series["reduction_01/fp32/tilelang/tilebench-tilelang 0.1.0/default/NVIDIA H200"]
    assert not missing.steps
    assert "pass_rate" not in missing.summary
    wrong = series["matmul_02/fp32/cutile/tilebench-cutile 0.1.0/default/NVIDIA H200"]
    assert wrong.summary["pass_rate"] == pytest.approx(5 / 6)
    assert sorted({step.step for step in wrong.steps}) == [1, 2, 3, 4, 5]
    eager = series["reduction_01/fp32/triton/tilebench-triton 0.1.0/default/NVIDIA H200"]
    speedups = {step.step for step in eager.steps if step.metric == "speedup"}
    assert speedups == {0, 1, 5}  # not 2 (timed eagerly), 3 (another precision) and 4 (suspicious)


def test_a_suspicious_time_is_shown_and_never_averaged(tmp_path: Path):
    folder = write_campaign(tmp_path / "c1", troubled_records())
    series = {s.key: s for s in campaign_series_of(folder)}
    found = series["reduction_01/fp32/triton/tilebench-triton 0.1.0/default/NVIDIA H200"]
    assert {s.step for s in found.steps if s.metric == "latency_us"} == set(range(6))
    values = [s.value for s in found.steps if s.metric == "latency_us" and s.step != 4]
    assert found.summary["geomean_latency_us"] == pytest.approx(math.exp(sum(map(math.log, values)) / len(values)))


def test_infinities_nans_and_huge_parameters_lose_nothing(results: Path):
    huge = {"table": "x" * 10_000, "BLOCK": 64}
    records = [
        replace(record, config=huge, mean_us=math.inf, p90_us=math.nan) if record.backend == "triton" else record
        for record in synthetic_records(SMALL)
    ]
    folder, options = write_campaign(results / "c1", records), store_of(results)
    campaign = Results(name="c1", folder=folder, records=tuple(records))
    direct = next(s for s in campaign_series(campaign) if s.tags["backend"] == "triton")
    assert "mean_us@0=inf" in direct.left_out
    assert "p90_us@0=nan" in direct.left_out
    assert sync_campaign(folder, options).complete
    child = next(run for run in runs_of(options) if run.data.tags.get("backend") == "triton")
    assert len(child.data.params["config"]) <= MAX_PARAM
    path = client_of(options).download_artifacts(child.info.run_id, "params.json")
    assert json.loads(json.loads(Path(path).read_text())["config"]) == huge


def test_a_long_text_is_cut_with_its_digest():
    assert clip("short") == "short"
    cut = clip("x" * 10_000)
    assert len(cut) == MAX_PARAM
    assert "10000 characters" in cut


def test_eight_writers_at_once_lose_nothing(shared):
    options, ends = shared
    assert ends == [0] * 8
    runs = runs_of(options)
    assert len(runs) == 7 * (1 + 3)
    assert {run.info.status for run in runs} == {"FINISHED"}


def _sync_and_die(folder: Path) -> None:
    from tilebench_core.tracking.store import Store

    log, count = Store.log, [0]

    def die(*args):
        count[0] += 1
        log(*args)
        if count[0] == 4:
            os.kill(os.getpid(), signal.SIGKILL)

    Store.log = die
    sync_campaign(folder, store_of(folder.parent))


def test_a_sync_that_was_killed_leaves_nothing_running_after_the_next(results: Path):
    folder, options = write_campaign(results / "c1", synthetic_records(SMALL)), store_of(results)
    victim = FORK.Process(target=_sync_and_die, args=(folder,))
    victim.start()
    victim.join(60)
    assert victim.exitcode == -signal.SIGKILL
    assert "RUNNING" in {run.info.status for run in runs_of(options)}
    result = sync_campaign(folder, options)
    assert (result.sent, result.unchanged) == (7, 3)
    runs = runs_of(options)
    assert len(runs) == 1 + 10
    assert {run.info.status for run in runs} == {"FINISHED"}


def test_a_store_that_fails_in_the_middle_is_reported_and_completed_later(
    results: Path, monkeypatch: pytest.MonkeyPatch
):
    from tilebench_core.tracking.store import Store

    folder, options = write_campaign(results / "c1", synthetic_records(SMALL)), store_of(results)
    log, count = Store.log, [0]

    def fail(*args):
        count[0] += 1
        if count[0] == 4:
            raise RuntimeError("disk full")
        log(*args)

    monkeypatch.setattr(Store, "log", fail)
    result = sync_campaign(folder, options)
    assert (result.sent, len(result.unsent)) == (3, 7)
    assert result.unsent[0].reason == "RuntimeError: disk full"
    assert f"tilebench sync {folder}" in result.message
    assert {run.info.status for run in runs_of(options)} == {"FINISHED", "FAILED"}
    monkeypatch.setattr(Store, "log", log)
    assert sync_campaign(folder, options).complete
    assert {run.info.status for run in runs_of(options)} == {"FINISHED"}


def test_runs_that_were_deleted_are_sent_again(results: Path):
    folder, options = write_campaign(results / "c1", synthetic_records(SMALL)), store_of(results)
    assert sync_campaign(folder, options).sent == 10
    client = client_of(options)
    for run in runs_of(options):
        client.delete_run(run.info.run_id)
    assert sync_campaign(folder, options).sent == 10


def test_nothing_is_sent_without_tracking(tmp_path: Path):
    result = sync_campaign(tmp_path, TrackingOptions(kind="none"))
    assert result.complete
    assert result.message == "not tracked (tracking=none)"


def test_wrong_options_are_one_clear_line():
    with pytest.raises(ConfigError, match="Did you mean 'sqlite'"):
        TrackingOptions(kind="sqllite")
    with pytest.raises(ConfigError, match="a server needs one"):
        TrackingOptions(kind="server")
    with pytest.raises(ConfigError, match="choose tracking=server"):
        TrackingOptions(uri="http://localhost:5000")
    with pytest.raises(RequestError, match="open http://tracker:5000"):
        server_command(TrackingOptions(kind="server", uri="http://tracker:5000"))


def test_a_page_needs_a_store_and_sync_makes_it(results: Path, capsys: pytest.CaptureFixture[str]):
    write_campaign(results / "c1", synthetic_records(SMALL))
    assert sync_command([], str(results), None) == 0
    assert "10 series sent" in capsys.readouterr().out
    assert "--backend-store-uri" in ui_command(results)
    assert page_url(results).endswith("/runs?viewStateShareKey=tilebench")
    assert page_url(results / "elsewhere") == "http://127.0.0.1:5000/"
    with pytest.raises(RequestError, match="tilebench sync"):
        ui_command(results / "elsewhere")
    with pytest.raises(RequestError, match="no campaign in"):
        sync_command([], str(results / "elsewhere"), None)


def test_a_dead_server_costs_seconds_and_no_record(tmp_path: Path):
    folder = write_campaign(tmp_path / "c1", synthetic_records(SMALL))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    started = time.monotonic()
    result = sync_campaign(folder, TrackingOptions(kind="server", uri=f"http://127.0.0.1:{port}"))
    assert time.monotonic() - started < 8
    assert not result.complete
    assert len(result.unsent) == 10
    assert "refused" in result.message


def test_a_real_server_takes_a_campaign_and_may_die_in_the_middle(server, tmp_path: Path, monkeypatch):
    from tilebench_core.tracking.store import Store

    uri, process = server
    options = TrackingOptions(kind="server", uri=uri, experiment="served")
    folder = write_campaign(tmp_path / "c1", synthetic_records(SMALL))
    assert sync_campaign(folder, options).sent == 10
    runs = runs_of(options)
    assert len(runs) == 11
    assert {run.info.status for run in runs} == {"FINISHED"}
    child = next(run for run in runs if run.data.tags.get("backend") == "triton")
    assert {f.path for f in client_of(options).list_artifacts(child.info.run_id)} == {"records.jsonl", "params.json"}

    other, log, count = write_campaign(tmp_path / "c2", synthetic_records(SMALL)), Store.log, [0]

    def die(*args):
        count[0] += 1
        if count[0] == 3:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        log(*args)

    monkeypatch.setattr(Store, "log", die)
    result = sync_campaign(other, options)
    assert (result.sent, len(result.unsent)) == (2, 8)
    assert "tilebench sync" in result.message


def test_a_report_reaches_the_campaigns_run_and_its_tables_only_once(results: Path):
    folder, options = write_campaign(results / "c1", synthetic_records(SMALL)), store_of(results)
    run_id = sync_campaign(folder, options).run_id
    assert report_command(argparse.ArgumentParser(), [str(folder), "--formats", "csv,html,figures", "--sync"]) == 0
    client = client_of(options)
    assert {f.path for f in client.list_artifacts(run_id, "report")} >= {"report/records.csv", "report/report.html"}
    figures = {f.path for f in client.list_artifacts(run_id, "report/figures")}
    assert {"report/figures/speedup_boxes.svg", "report/figures/speedup_boxes.csv"} <= figures
    assert client.get_run(run_id).info.status == "FINISHED"
    assert len(runs_of(options)) == 1 + 10  # the series were there already
    (store,) = known_stores(folder)
    assert (store.uri, store.experiment) == (options.uri, "test")


def test_a_campaign_that_was_never_sent_goes_to_the_store_beside_it(tmp_path: Path):
    assert known_stores(tmp_path / "c1") == [results_store(tmp_path)]
    folder = write_campaign(tmp_path / "c1", synthetic_records(SMALL))
    with pytest.raises(RequestError, match="leave out --out"):
        report_command(argparse.ArgumentParser(), [str(folder), "--sync", "--out", str(tmp_path / "x")])


def test_the_run_table_sorts_by_every_summary(tmp_path: Path):
    folder = write_campaign(tmp_path / "c1", synthetic_records(SMALL))
    tuned = [s for s in campaign_series_of(folder) if s.tags["mode"] == "tuned"]
    wanted = {"geomean_latency_us", "geomean_speedup", "geomean_utilisation", "tuning_gain", "pass_rate"}
    assert tuned
    assert all(wanted <= set(series.summary) for series in tuned)


def test_the_page_says_where_the_run_table_is_and_opens_it(results: Path, monkeypatch, capsys):
    import socket
    import webbrowser

    from tilebench_core import cli

    class Server:
        """Serves as long as the test looks."""

        def __init__(self, argv):
            assert "server" in argv

        def poll(self):
            return None

        def wait(self):
            return 0

        def terminate(self):
            pass

    sync_campaign(write_campaign(results / "c1", synthetic_records(SMALL)[:1]))
    opened: list[str] = []
    monkeypatch.setattr(subprocess, "Popen", Server)
    monkeypatch.setattr(webbrowser, "open", opened.append)
    with socket.create_server(("127.0.0.1", 0)) as page:
        port = page.getsockname()[1]
        assert cli.main(["ui", "--results-dir", str(results), "--port", str(port)]) == 0
        url = f"http://127.0.0.1:{port}/#/experiments/1/runs?viewStateShareKey=tilebench"
        assert url in capsys.readouterr().out
        assert opened == [url]
        assert cli.main(["ui", "--results-dir", str(results), "--port", str(port), "--no-browser"]) == 0
        assert opened == [url]
