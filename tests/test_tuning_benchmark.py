"""`benchmarks/tuning.py`: what it makes of rounds; its commands need a GPU."""

import importlib.util
import json
from pathlib import Path

import pytest

PLACE = {"device": "a GPU", "versions": {"dsl": "1"}, "cores": 4}


@pytest.fixture(scope="module")
def benchmark_module():
    path = Path(__file__).parent.parent / "benchmarks" / "tuning.py"
    spec = importlib.util.spec_from_file_location("tuning_benchmark", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def one_round(plain_s, shared_s, native_s, medians=(10.0, 9.0)):
    default, winner = {"TILE": 1}, {"TILE": 2}
    search = {"candidates": 2, "failed": 0}
    return {
        "off": {"wall_s": plain_s, "config": default},
        "shared": {"wall_s": shared_s, "config": winner, "search": search},
        "shared_again": {"wall_s": 5.0},
        "native": {"wall_s": native_s, "config": winner, "search": search},
        "native_again": {"wall_s": 5.0},
        "repeats": [{"config": winner}] * 5,
        "turns": [{"config": c, "median_us": m} for c, m in zip((default, winner), medians, strict=True)],
    }


def test_the_table_compares_within_a_round_and_shows_medians_and_extremes(benchmark_module):
    rounds = [one_round(10, 12, 20), one_round(20, 21, 30, (11.0, 9.5)), one_round(10, 14, 20)]
    lines = benchmark_module.table([{"backend": "dsl", **PLACE, "rounds": rounds}]).splitlines()
    shared = [cell.strip() for cell in next(line for line in lines if "| shared |" in line).split("|")[1:-1]]
    assert shared[2:5] == ["3", "2", "0"]
    assert shared[5:9] == ["14.0 (12.0–21.0)", "2.0 (1.0–4.0)", "0.20 (0.10–0.40)", "5.0"]
    assert shared[9:] == ["9.00, 9.50", "1.11×, 1.16×", "TILE=2"]
    assert lines[-1] == "| dsl | 15 times | 1 | 9.00, 9.50 |"


def test_a_search_that_is_refused_in_one_round_is_shown_for_the_others(benchmark_module):
    rounds = [one_round(10, 12, 20), one_round(10, 14, 20)]
    del rounds[1]["native_again"]
    rounds[1]["native"] = {"wall_s": 11.0, "config": None, "reason": "no time"}
    lines = benchmark_module.table([{"backend": "dsl", **PLACE, "rounds": rounds}]).splitlines()
    shared, native = (
        [cell.strip() for cell in line.split("|")] for line in lines if "shared | 2" in line or "native | 1" in line
    )
    assert shared[7:9] == ["3.0 (2.0–4.0)", "0.20"]
    assert native[7:9] == ["10.0", "1.00"]
    del rounds[0]["native_again"]
    lines = benchmark_module.table([{"backend": "dsl", **PLACE, "rounds": rounds}]).splitlines()
    assert any("| native | 2 |" in line and line.endswith("| no time |") for line in lines)


def test_rounds_add_up_and_those_of_another_machine_are_kept_apart(benchmark_module, tmp_path):
    path = tmp_path / "tuning-dsl.json"
    for number in (1, 2):
        path.write_text(json.dumps(benchmark_module.with_round(path, "dsl", PLACE, one_round(number, 2, 3))))
    assert [one["off"]["wall_s"] for one in json.loads(path.read_text())["rounds"]] == [1, 2]
    with pytest.raises(SystemExit, match="cores 4"):
        benchmark_module.with_round(path, "dsl", {**PLACE, "cores": 8}, one_round(3, 4, 5))
    assert len(json.loads(path.read_text())["rounds"]) == 2
    [apart] = tmp_path.glob("*-other.json")
    assert json.loads(apart.read_text())["rounds"][0]["off"]["wall_s"] == 3
    with pytest.raises(SystemExit, match="cores 4"):
        benchmark_module.with_round(path, "dsl", {**PLACE, "cores": 8}, one_round(6, 4, 5))
    assert len(list(tmp_path.glob("*-other.json"))) == 2
