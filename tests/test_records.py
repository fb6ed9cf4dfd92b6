"""Records are strict JSON lines with a schema that is generated from their type and does not change by accident."""

from __future__ import annotations

import gzip
import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tilebench_core.analysis.versions import current, former
from tilebench_core.campaign import Campaign, find_campaign, open_campaign
from tilebench_core.errors import ConfigError, RequestError
from tilebench_core.outcomes import Outcome
from tilebench_core.records import (
    SCHEMA_VERSION,
    Record,
    RecordReader,
    RecordWriter,
    latest,
    record_from_json,
    record_schema,
    record_to_json,
)

SCHEMA = Path(__file__).parent.parent / "docs" / "record.schema.json"


def record(**changes) -> Record:
    values = {
        "trial_id": "t1", "operator": "softmax", "category": "reduction", "dtype": "fp16", "params": {"rows": 4},
        "backend": "torch", "provider": "tilebench-operators 0.1.0", "mode": "default", "outcome": Outcome.PASSED,
    }  # fmt: skip
    return Record(**{**values, **changes})


def full(**changes) -> Record:
    return record(
        samples_us=(1.5, 1.25), median_us=1.375, mean_us=1.375, outliers=(1,), config={"BLOCK": 64}, flops=10.0,
        bytes=2750.0, roofline_us=0.6875, device_state={"sm_clock_mhz": 1980}, seconds={"compile": 0.5}, **changes,
    )  # fmt: skip


def test_a_record_comes_back_as_it_was():
    for original in (record(), full(), record(outcome=Outcome.WRONG, reason="dtype", check="dtype")):
        assert record_from_json(record_to_json(original)) == original


def test_a_line_is_strict_json_with_null_for_what_is_missing():
    line = record_to_json(full())
    values = json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert "\n" not in line
    assert values["span_us"] is None
    assert values["outcome"] == "PASSED"
    assert values["schema_version"] == SCHEMA_VERSION


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_json_has_no_word_for_nan_and_infinity_so_they_become_null(value):
    written = record(max_abs_err=value, device_state={"power_w": [value, 1.0]}, outcome=Outcome.WRONG, reason="x")
    values = json.loads(record_to_json(written), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert values["max_abs_err"] is None
    assert values["device_state"] == {"power_w": [None, 1.0]}


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if not outcome.may_have_numbers])
def test_what_did_not_pass_holds_no_latency_and_says_why(outcome):
    with pytest.raises(ConfigError, match="cannot hold a latency"):
        record(outcome=outcome, reason="because", median_us=1.0)
    with pytest.raises(ConfigError, match="must say why"):
        record(outcome=outcome)


def test_an_unknown_mode_is_refused():
    with pytest.raises(ConfigError, match="mode 'fast'; expected one of default, tuned"):
        record(mode="fast")


def test_rates_follow_from_the_median_and_never_from_nothing():
    assert (full().gbps, full().tflops, full().utilisation) == (2.0, pytest.approx(10 / 1.375 / 1e6), 0.5)
    assert (record().gbps, record().tflops, record().utilisation) == (None, None, None)


def test_keys_of_a_newer_minor_version_are_ignored_and_a_newer_schema_is_refused():
    values = json.loads(record_to_json(record()))
    assert record_from_json(json.dumps({**values, "colour": "blue"})) == record()
    with pytest.raises(ConfigError, match=f"schema version {SCHEMA_VERSION + 1}.*upgrade tilebench"):
        record_from_json(json.dumps({**values, "schema_version": SCHEMA_VERSION + 1}))


def test_what_was_measured_of_a_kernels_former_source_gives_way_to_what_is_measured_of_the_present_one():
    wrong = record(trial_id="a", kernel="old", device="H200", outcome=Outcome.WRONG, reason="x")
    crashed = record(
        trial_id="b", kernel="old", params={"rows": 8}, outcome=Outcome.CRASHED, reason="x"
    )  # knows no device
    elsewhere = record(trial_id="c", kernel="old", device="A100", median_us=3.0)
    unknown = record(trial_id="d", device="H200", params={"rows": 2}, median_us=3.0)  # before records named the source
    untouched = record(trial_id="e", kernel="old", device="H200", mode="tuned", median_us=1.0)
    again = [
        record(trial_id=f"{rows}", kernel="new", device="H200", params={"rows": rows}, median_us=2.0)
        for rows in (4, 8, 2)
    ]
    kept = current([wrong, crashed, elsewhere, unknown, untouched, *again])
    assert kept == [elsewhere, untouched, *again]
    assert former(kept) == [elsewhere, untouched]
    assert current(kept) == kept


def test_the_published_schema_is_the_one_of_the_type():
    generated = json.dumps(record_schema(), indent=1, sort_keys=True) + "\n"
    if os.environ.get("TILEBENCH_WRITE_SCHEMA"):
        SCHEMA.write_text(generated, encoding="utf-8")
    assert SCHEMA.read_text(encoding="utf-8") == generated, (
        "TILEBENCH_WRITE_SCHEMA=1 pytest tests/test_records.py writes it"
    )


def test_records_obey_the_published_schema():
    import jsonschema

    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))
    for written in (record(), full(), record(outcome=Outcome.CRASHED, reason="SIGSEGV", provider=None)):
        validator.validate(json.loads(record_to_json(written)))
    for broken in ({"operator": 5}, {"outcome": "FINE"}, {"samples_us": "1"}, {"trial_id": None}):
        assert not validator.is_valid({**json.loads(record_to_json(full())), **broken})


def test_a_torn_last_line_is_set_aside_and_the_next_record_is_not_glued_to_it(tmp_path):
    path = tmp_path / "records.jsonl"
    path.write_text(record_to_json(record()) + "\n" + record_to_json(record(trial_id="t2"))[:50])
    writer = RecordWriter(path)
    writer.append(record(trial_id="t3"))
    writer.close()
    reader = RecordReader(path)
    assert [found.trial_id for found in reader] == ["t1", "t3"]
    assert [number for number, _ in reader.torn] == [2]
    assert reader.torn[0][1].startswith("JSONDecodeError")


@pytest.mark.parametrize(
    "line",
    ["[]", "5", '{"trial_id": "x"}', '{"outcome": "FINE"}', "\x00\x00", "{", '{"outcome": "PASSED", "mode": "x"}'],
)
def test_a_line_that_is_no_record_is_set_aside_wherever_it_stands(tmp_path, line):
    path = tmp_path / "records.jsonl"
    path.write_text("\n".join([record_to_json(record()), line, "", record_to_json(record(trial_id="t2"))]) + "\n")
    reader = RecordReader(path)
    assert [found.trial_id for found in reader] == ["t1", "t2"]
    assert [number for number, _ in reader.torn] == [2]


def test_bytes_that_are_no_text_are_set_aside(tmp_path):
    path = tmp_path / "records.jsonl"
    path.write_bytes(b"\xff\xfe\x00\n" + record_to_json(record()).encode() + b"\n")
    reader = RecordReader(path)
    assert len(list(reader)) == 1
    assert len(reader.torn) == 1


def test_a_published_campaign_is_read_from_gz(tmp_path):
    folder = tmp_path / "published"
    folder.mkdir()
    with gzip.open(folder / "records.jsonl.gz", "wt") as lines:
        lines.write(record_to_json(record()) + "\n")
    assert [found.trial_id for found in Campaign(folder).records()] == ["t1"]
    assert find_campaign("published", str(tmp_path)).folder == folder


def test_a_trial_that_ran_again_replaces_its_earlier_end():
    failed = record(outcome=Outcome.TIMEOUT, reason="hang")
    assert latest([failed, record(trial_id="t2"), record()]) == [record(trial_id="t2"), record()]


def test_writers_that_share_a_campaign_do_not_mix_their_lines(tmp_path):
    path = tmp_path / "records.jsonl"
    code = (
        "import sys; sys.path.insert(0, sys.argv[3]); from test_records import full; from pathlib import Path\n"
        "from tilebench_core.records import RecordWriter\n"
        "writer = RecordWriter(Path(sys.argv[1]))\n"
        "for n in range(200): writer.append(full(trial_id=f'{sys.argv[2]}-{n}', reason='x' * 50000))\n"
    )
    command = [sys.executable, "-c", code, str(path)]
    writers = [subprocess.Popen([*command, name, str(Path(__file__).parent)]) for name in "abcd"]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0, 0]
    reader = RecordReader(path)
    assert len({found.trial_id for found in reader}) == 800
    assert reader.torn == []


def test_what_a_campaign_ran_on_is_kept_once_and_each_resume_beside_it(tmp_path):
    campaign = open_campaign(str(tmp_path), "named")
    campaign.describe({"host": "a"}, {"seed": 0})
    campaign.describe({"host": "b"}, {"seed": 1})
    assert campaign.environment()["host"] == "a"
    assert campaign.environment()["resumed"] == [{"host": "b", "config": {"seed": 1}}]
    assert (campaign.folder / "config.yaml").read_text() == "seed: 0\n"


@pytest.mark.parametrize("name", ["a/b", "..", "."])
def test_a_campaign_has_a_plain_name(tmp_path, name):
    with pytest.raises(RequestError, match="expected a plain name; results_dir="):
        open_campaign(str(tmp_path), name)


def test_an_unknown_campaign_is_refused_with_those_that_exist(tmp_path):
    open_campaign(str(tmp_path), "monday").writer().append(record())
    with pytest.raises(RequestError, match="no campaign 'tuesday' here; expected a folder or one of: monday"):
        find_campaign("tuesday", str(tmp_path))


def test_an_outcome_is_a_word_with_a_sentence():
    for outcome in Outcome:
        assert outcome.value == outcome.name
        assert outcome.explanation.endswith(".")
    assert replace(record()).outcome is Outcome.PASSED
