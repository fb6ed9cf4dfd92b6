"""The report: every format says the same, and needs nothing but itself."""

from __future__ import annotations

import argparse
import csv
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console
from synthetic import GPU, Shape, synthetic_records, troubled_records, write_campaign

from tilebench_core.errors import RequestError
from tilebench_core.outcomes import Outcome
from tilebench_core.report import FORMATS, write_report
from tilebench_core.report.chart import sparkline
from tilebench_core.report.command import report_command
from tilebench_core.report.content import content_of
from tilebench_core.report.markdown import markdown_report
from tilebench_core.report.page import _ranges
from tilebench_core.report.terminal import print_report


@pytest.fixture(scope="module")
def campaign(tmp_path_factory) -> Path:
    return write_campaign(tmp_path_factory.mktemp("results") / "night", troubled_records())


@pytest.fixture(scope="module")
def written(campaign: Path) -> dict[str, Path]:
    formats = [name for name in FORMATS if name not in ("terminal", "figures")]
    return {path.name: path for path in write_report([campaign], campaign / "report", formats)}


class Page(HTMLParser):
    """Collects what a test wants to know about a page, and refuses unclosed elements."""

    VOID = ("meta", "link", "input", "path", "br")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.counts: dict[str, int] = {}

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.counts[tag] = self.counts.get(tag, 0) + 1
        if tag not in self.VOID:
            self.open.append(tag)
        if values.get("id"):
            self.ids.append(values["id"])
        for name in ("href", "src"):
            if values.get(name):
                self.links.append(values[name])

    def handle_startendtag(self, tag, attrs):
        self.counts[tag] = self.counts.get(tag, 0) + 1

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag


def test_the_page_is_whole_and_needs_no_network(written):
    text = written["report.html"].read_text()
    page = Page()
    page.feed(text)
    assert page.open == []
    assert len(set(page.ids)) == len(page.ids)
    for link in page.links:
        assert link == "data:," or link.removeprefix("#") in page.ids
    assert not re.search(r"(src|href)=.?https?:|@import|url\(.?http", text)
    assert page.counts["polyline"] > 100


def test_failures_come_first_and_reasons_are_text_not_markup(written):
    text = written["report.html"].read_text()
    assert text.index('id="failures"') < text.index('id="g0"')
    assert "&lt;b&gt;&amp;amp;&lt;/b&gt;" in text
    assert "<b>&amp;</b>" not in text
    markdown = written["report.md"].read_text()
    assert markdown.index("## Failures") < markdown.index(f"## {GPU}")
    assert "| WRONG | matmul\\_02" in markdown or "| WRONG | matmul_02" in markdown
    assert "run took longer than 30 s" in markdown


def test_what_was_not_applicable_is_listed_apart(campaign):
    content = content_of([campaign])
    assert {trouble.outcome for trouble in content.inapplicable} == {"MISSING", "UNSUPPORTED"}
    assert {trouble.outcome for trouble in content.failures} == {"WRONG", "TIMEOUT", "SUSPICIOUS"}
    assert content.outcomes["MISSING"] == 48


def test_each_gpu_has_a_group_of_its_own(campaign):
    groups = content_of([campaign]).groups
    assert [group.device for group in groups] == ["NVIDIA A100", GPU]
    assert groups[0].suite[0].attainable.value is None  # the ceilings in the environment are the other GPU's
    assert groups[1].suite[0].attainable.value is not None


def test_notes_say_what_a_reader_must_know(campaign):
    notes = " ".join(content_of([campaign]).notes)
    for part in ("0.50% are ties (noise floor, measured)", "4 records are SUSPICIOUS", "without a CUDA graph"):
        assert part in notes


def test_records_of_kernels_that_have_changed_since_are_told(tmp_path):
    records = synthetic_records(Shape(operators=1, cases=2, trouble=False))
    triton = [r for r in records if (r.backend, r.mode) == ("triton", "default")]
    rest = [r for r in records if r not in triton]
    new = [replace(r, kernel="b", trial_id=f"{r.trial_id}b") for r in triton[:1]]
    write_campaign(tmp_path / "again", [*rest, *(replace(r, kernel="a") for r in triton), *new])
    content = content_of([tmp_path / "again"])
    assert len(content.records) == len(records)
    (note,) = [note for note in content.notes if "have changed since" in note]
    assert note.startswith(f"{len(triton) - 1} records are of kernels that have changed since")
    assert note.endswith("pointwise_00 in triton.")


def test_csv_and_parquet_hold_every_record(written):
    table, parquet = pd.read_csv(written["records.csv"]), pd.read_parquet(written["records.parquet"])
    records = troubled_records()
    assert len(table) == len(parquet) == len(records)
    assert list(table.trial_id) == [record.trial_id for record in records]
    assert table.median_us.isna().sum() == sum(record.median_us is None for record in records)
    assert set(table.columns) == set(parquet.columns)


def test_the_terminal_shows_the_same_tables(campaign):
    console = Console(width=160, record=True, file=open("/dev/null", "w"))  # noqa: SIM115  # closed with the process
    print_report(content_of([campaign]), console)
    text = console.export_text()
    for part in ("Failures", "cutile (tuned)", "Speedup, common", "pointwise_00", "TIMEOUT", "22 / 0 / 0"):
        assert part in text


def test_a_report_over_two_campaigns_names_both(campaign, tmp_path):
    other = write_campaign(tmp_path / "day", synthetic_records(Shape(operators=1, device="NVIDIA B200")))
    content = content_of([campaign, other])
    assert content.title == "night, day"
    assert len(content.groups) == 3


def test_every_static_figure_comes_with_its_values(tmp_path: Path):
    shape = Shape(operators=5, dtypes=("fp16",), cases=3, samples=3, spread=0.2)
    folder = write_campaign(tmp_path / "c", synthetic_records(shape))
    from tilebench_core.report.paper import paper_figures

    paths = paper_figures(content_of([folder]), tmp_path / "figures", formats=("svg",))
    stems = {path.stem for path in paths}
    assert stems == {
        "speedup_scatter", "tuning_arrows", "latency_bars", "speedup_boxes", "roofline", "tuning_gain_boxes",
        "utilisation_heat_map",
    }  # fmt: skip
    for stem in stems:
        assert (tmp_path / "figures" / f"{stem}.svg").stat().st_size > 2000
        with (tmp_path / "figures" / f"{stem}.csv").open() as file:
            rows = list(csv.reader(file))
        assert len(rows) > 2
        assert {len(row) for row in rows} == {len(rows[0])}


def test_a_campaign_in_which_nothing_was_timed_still_has_a_report(tmp_path: Path):
    records = [r for r in synthetic_records(Shape()) if r.median_us is None]
    folder = write_campaign(tmp_path / "c", records)
    paths = write_report([folder], tmp_path / "out", FORMATS)
    assert {path.name for path in paths} == {"report.md", "report.html", "records.csv", "records.parquet"}


def test_a_campaign_that_is_being_written_or_unknown_is_a_clear_error(tmp_path: Path):
    with pytest.raises(RequestError, match="expected the records of a campaign"):
        write_report([tmp_path], tmp_path / "out")


def test_the_command_writes_beside_the_campaign_and_refuses_an_unknown_format(campaign, capsys):
    assert report_command(argparse.ArgumentParser(), [str(campaign), "--formats", "md"]) == 0
    assert "report.md" in capsys.readouterr().out
    with pytest.raises(RequestError, match="Did you mean 'html'"):
        report_command(argparse.ArgumentParser(), [str(campaign), "--formats", "htm"])


def test_small_things():
    assert _ranges([0, 1, 2, 5, 7, 8]) == "0–2, 5, 7–8"
    assert sparkline([1.0], "#000") == ""
    assert sparkline([1.0, 2.0, 0.5], "#000").count(",") == 3


def test_a_wrong_edge_case_is_a_failure_though_it_has_no_time(tmp_path: Path):
    records = synthetic_records(Shape(operators=1, trouble=False))
    first = records[0]
    bad = replace(
        first, trial_id="edge", case_kind="edge", outcome=Outcome.WRONG, reason="aliases its input", median_us=None,
        samples_us=None,
    )  # fmt: skip
    content = content_of([write_campaign(tmp_path / "c", [*records, bad])])
    (trouble,) = content.failures
    assert trouble.first.startswith("edge case ")


def test_a_report_says_whose_ceilings_it_uses(tmp_path: Path):
    records = synthetic_records(Shape(operators=1))

    def notes(**peaks: object) -> str:
        folder = write_campaign(tmp_path / str(peaks.get("source", "none")), records, peaks=peaks)
        return " ".join(content_of([folder]).notes)

    measured = notes(source="measured", bandwidth_gbps=4000.0, datasheet={"bandwidth_gbps": 5000.0})
    assert "against measured ceilings (4,000 GB/s and its peaks; the datasheet's 5,000 GB/s apart)" in measured
    assert "against the datasheet (8,000 GB/s" in notes(source="datasheet", bandwidth_gbps=8000.0)
    assert "does not know its ceilings" in notes()


def test_the_datasheet_of_a_known_device_stands_beside_what_was_measured(campaign):
    (group,) = [group for group in content_of([campaign]).groups if group.device == GPU]
    assert group.peaks.datasheet.bandwidth_gbps == 4800.0  # conf/device/nvidia_h200.yaml
    assert "of the datasheet" in markdown_report(content_of([campaign]))


def test_who_is_fastest_is_said_where_there_is_a_kernel_and_an_empty_table_says_so(tmp_path: Path):
    records = synthetic_records(Shape(operators=2, dtypes=("fp16",), cases=3, samples=3))
    text = markdown_report(content_of([write_campaign(tmp_path / "all", records)]))
    assert re.search(r"### Who is fastest at the largest case\n\nThe best kernel .* on \d of 2 operators", text)
    assert "### Below half of the attainable\n\nNone." in text  # no launch floor is known
    eager = [record for record in records if record.backend == "torch"]
    alone = markdown_report(content_of([write_campaign(tmp_path / "eager", eager)]))
    assert "Who is fastest" not in alone
    assert "### Below half of the attainable\n\nNone." in alone


def test_figures_are_drawn_beside_the_rest_in_the_formats_asked_for(tmp_path: Path):
    folder = write_campaign(tmp_path / "c", synthetic_records(Shape(operators=2, dtypes=("fp16",), cases=3, samples=3)))
    written = write_report([folder], tmp_path / "out", ["md", "figures"], ["png", "pdf"])
    endings = {path.suffix for path in written if path.parent.name == "figures"}
    assert endings == {".png", ".pdf", ".csv"}
    assert all(path.stat().st_size > 0 for path in written)
    with pytest.raises(RequestError, match="expected some of pdf, svg, png"):
        report_command(argparse.ArgumentParser(), [str(folder), "--figure-formats", "pngg"])


def test_a_report_over_17600_records_is_quick_small_and_lean(tmp_path: Path):
    """Ten seconds and 1 GB on an idle machine of two cores; here its CPU time, since others may be at work."""
    shape = Shape(
        operators=44, cases=20, backends=("torch", "torch_compile", "triton", "cutile", "tilelang", "helion"),
        samples=20, spread=0.2,
    )  # fmt: skip
    records = synthetic_records(shape)
    assert len(records) == 17_600
    folder = write_campaign(tmp_path / "large", records)
    del records
    # A process counts as its own what its parent held when it was forked, and this one is large: a small one in between.
    small = (
        "import resource, subprocess, sys; code = subprocess.call(sys.argv[1:], stdout=sys.stderr);"
        "used = resource.getrusage(resource.RUSAGE_CHILDREN);"
        "print(code, used.ru_utime + used.ru_stime, used.ru_maxrss)"
    )
    report = [sys.executable, "-m", "tilebench_core.cli", "report", str(folder)]
    done = subprocess.run([sys.executable, "-c", small, *report], capture_output=True, text=True, check=True)
    code, cpu_s, peak_kb = done.stdout.split()
    assert code == "0", done.stderr
    assert float(cpu_s) < 20  # two cores for ten seconds
    assert int(peak_kb) < 1_000_000
    assert (folder / "report/report.html").stat().st_size < 10_000_000


@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
def test_the_page_opens_without_a_console_error(written, tmp_path: Path):
    argv = [
        "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
        f"--user-data-dir={tmp_path}", "--enable-logging=stderr", "--v=0", "--virtual-time-budget=2000", "--dump-dom",
        written["report.html"].resolve().as_uri(),
    ]  # fmt: skip
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert "find an operator" in done.stdout
    assert "CONSOLE" not in done.stderr
