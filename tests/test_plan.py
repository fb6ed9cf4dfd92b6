"""The plan: every trial of a request, under an id that changes with everything that can change its number."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
from packs import pack_of, plugin, registry_of, write_operator

from tilebench_core.config import run_config
from tilebench_core.device import CPU, target_device
from tilebench_core.errors import RequestError
from tilebench_core.outcomes import Outcome
from tilebench_core.plan import make_plan
from tilebench_core.pytorch.compiled import TorchCompileBackend
from tilebench_core.pytorch.eager import TorchBackend
from tilebench_core.records import Record
from tilebench_core.registry import build_registry
from tilebench_core.run import to_do

VERSIONS = {"torch": {"torch": "2.9"}, "one": {"one": "1"}}


def composed(registry, **changes):
    operators = {o.folder: {**o.config.raw, "case_grid": o.config.axes} for o in registry.operators.values()}
    return {"operators": operators, "backends": {name: {} for name in registry.backends}, **changes}


def planned(folder: Path, device=CPU, versions=VERSIONS, unavailable=None, registry=None, **changes):
    registry = registry or registry_of(folder)
    return make_plan(registry, run_config(composed(registry, **changes)), device, versions, unavailable or {})


def ids(tasks) -> list[str]:
    return [trial.trial_id for task in tasks for trial in task.trials]


@pytest.fixture
def pack(tmp_path) -> Path:
    write_operator(tmp_path / "pack", "alpha", kernels=("torch", "one"))
    return tmp_path / "pack"


def test_a_plan_is_operators_by_dtypes_by_cases_by_backends_by_modes(pack):
    write_operator(pack, "beta")
    tasks = planned(pack, mode=["default", "tuned"], tune={"kind": "shared"})
    assert len(tasks) == 2 * 2 * 3
    assert len(ids(tasks)) == len(set(ids(tasks))) == 2 * 2 * 3 * 2 * 2


def test_the_same_request_has_the_same_ids_in_every_process(pack):
    assert ids(planned(pack)) == ids(planned(pack))


def changed_kernel(pack):
    (pack / "alpha" / "impl_one.py").write_text("KERNEL = 1\n")


def changed_reference(pack):
    (pack / "alpha" / "operator.py").write_text("OPERATOR = 1\n")


def changed_config(pack):
    path = pack / "alpha" / "config.yaml"
    path.write_text(path.read_text().replace("flops_expr: n", "flops_expr: 2 * n"))


def changed_helper(pack):
    (pack / "_shared.py").write_text("SCALE = 2\n")


def test_pytorch_has_nothing_to_tune_and_runs_in_default_mode(pack):
    registry = build_registry([plugin("torch", tunable=False), plugin("one")], [pack_of(pack)], [])
    tuned = planned(pack, registry=registry, mode=["tuned"], tune={"kind": "shared"})
    assert {(t.backend, t.mode) for task in tuned for t in task.trials} == {("torch", "default"), ("one", "tuned")}
    assert TorchBackend.tunable is TorchCompileBackend.tunable is False


def test_the_number_of_compilers_is_part_of_no_id(pack):
    few = planned(pack, mode=["tuned"], tune={"kind": "shared", "workers": 1})
    assert ids(few) == ids(planned(pack, mode=["tuned"], tune={"kind": "shared", "workers": 8}))


@pytest.mark.parametrize(
    "change",
    [
        {"timing": {"repeat": 7}},
        {"timing": {"clock": "events"}},
        {"timing": {"cold": False}},
        {"seed": 1},
        {"backends": {"torch": {}, "one": {"option": 2}}},
        {"device": target_device("sm_90")},
        {"device": replace(target_device("sm_90"), driver="580")},
        {"versions": {**VERSIONS, "one": {"one": "2"}}},
        {"edit": changed_kernel},
        {"edit": changed_reference},
        {"edit": changed_config},
        {"edit": changed_helper},
    ],
    ids=lambda change: " ".join(f"{key} {getattr(value, '__name__', value)}"[:50] for key, value in change.items()),
)
def test_an_id_changes_with_everything_that_can_change_the_number(pack, change):
    (pack / "_shared.py").write_text("SCALE = 1\n")
    (pack / "alpha" / "impl_one.py").write_text("from pack._shared import SCALE\nKERNEL = None\n")
    before = planned(pack)
    change = dict(change)
    edit = change.pop("edit", None)
    if edit is not None:
        edit(pack)
    after = planned(pack, **change)

    def of_one(tasks):
        return {t.trial_id for task in tasks for t in task.trials if t.backend == "one"}

    assert len(of_one(after)) == len(of_one(before))
    assert not of_one(after) & of_one(before)


def test_an_id_changes_with_its_provider_and_its_mode(pack):
    backends = [plugin("torch"), plugin("one")]
    old = planned(pack, registry=build_registry(backends, [pack_of(pack, version="1.0")], []))
    new = planned(pack, registry=build_registry(backends, [pack_of(pack, version="1.1")], []))
    assert not set(ids(old)) & set(ids(new))
    tuned = planned(pack, mode=["tuned"], tune={"kind": "shared"})
    assert not set(ids(old)) & set(ids(tuned))


def test_how_tuning_is_done_is_part_of_tuned_trials_only(pack):
    modes = {"mode": ["default", "tuned"]}
    few = planned(pack, tune={"kind": "shared", "samples": 5}, **modes)
    many = planned(pack, tune={"kind": "shared", "samples": 50}, **modes)
    same = set(ids(few)) & set(ids(many))
    assert {t.mode for task in few for t in task.trials if t.trial_id in same} == {"default"}
    assert len(same) == len(ids(few)) // 2


@pytest.mark.parametrize(
    "change",
    [{"results_dir": "elsewhere"}, {"campaign": "x"}, {"figures": False}, {"tracking": {"kind": "none"}},
     {"timing": {"keep_profile": True}}, {"limits": {"run_s": 5}}, {"worker": {"recycle_after": 3}}, {"rerun": "failed"}],
    ids=str,
)  # fmt: skip
def test_an_id_does_not_change_with_what_cannot_change_the_number(pack, change):
    assert ids(planned(pack, **change)) == ids(planned(pack))


def test_another_backend_or_operator_beside_it_does_not_change_an_id(pack):
    alone = set(ids(planned(pack, registry=registry_of(pack, backends=("torch",)))))
    write_operator(pack, "beta")
    assert alone < set(ids(planned(pack, registry=registry_of(pack, backends=("torch", "one", "two")))))


def test_a_pair_without_a_kernel_is_planned_as_missing(pack):
    tasks = planned(pack, registry=registry_of(pack, backends=("torch", "two")))
    verdicts = {t.backend: t.verdict for task in tasks for t in task.trials}
    assert verdicts["torch"] is None
    assert verdicts["two"] == (
        Outcome.MISSING, "no installed pack holds alpha/impl_two.py; `tilebench new kernel` makes a skeleton",
    )  # fmt: skip


def test_a_backend_that_cannot_run_here_is_planned_as_unavailable_with_its_reason(pack):
    tasks = planned(pack, unavailable={"one": "no GPU: pip install one[gpu]"})
    verdicts = {t.backend: t.verdict for task in tasks for t in task.trials}
    assert verdicts["one"] == (Outcome.UNAVAILABLE, "no GPU: pip install one[gpu]")


@pytest.mark.parametrize(
    ("cases", "labels"),
    [
        (["grid"], ["n=8", "n=16", "n=24"]),
        ([0, 2], ["n=8", "n=24"]),
        (1, ["n=16"]),
        (["largest"], ["n=24"]),
        (["first", "largest", 0], ["n=8", "n=24"]),
        (["edge"], ["n=1"]),
        ("smoke", ["n=8"]),
    ],
)
def test_cases_are_chosen_by_index_and_by_name(pack, cases, labels):
    assert [task.case.label for task in planned(pack, cases=cases, dtype="fp16")] == labels


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cases": [3]}, r"case 3 of alpha: expected an index from 0 to 2"),
        ({"cases": [-1]}, r"case -1 of alpha: expected an index from 0 to 2"),
        ({"cases": ["egde"]}, r"cases='egde': expected grid, edge, .* Did you mean 'edge'\?"),
        ({"dtype": "fp61"}, r"no chosen operator has dtype 'fp61'; they have fp16, fp32. Did you mean 'fp16'\?"),
    ],
)
def test_what_is_not_there_is_refused_with_what_is(pack, change, message):
    with pytest.raises(RequestError, match=message):
        planned(pack, **change)


def test_a_config_that_was_changed_on_the_command_line_says_so_and_is_checked(pack):
    registry = registry_of(pack)
    raw = {**composed(registry)["operators"]["alpha"], "case_grid": {"n": [5]}}
    tasks = planned(pack, registry=registry, operators={"alpha": raw})
    assert [task.case.label for task in tasks] == ["n=5", "n=5"]
    assert all(task.changed for task in tasks)
    assert not any(task.changed for task in planned(pack))
    with pytest.raises(RequestError, match="category"):
        planned(pack, registry=registry, operators={"alpha": {**raw, "category": "nonsense"}})


def record_of(trial, outcome: Outcome) -> Record:
    return Record(
        trial_id=trial.trial_id, operator="alpha", category="pointwise", dtype="fp32", params={}, backend=trial.backend,
        provider=None, mode="default", outcome=outcome, reason="because",
    )  # fmt: skip


def test_what_is_recorded_is_not_run_again_unless_it_is_asked_for(pack):
    plan = planned(pack, dtype="fp32")
    first, second = plan[0].trials
    records = [record_of(first, Outcome.PASSED), record_of(second, Outcome.TIMEOUT)]
    assert len(ids(to_do(plan, records, "none"))) == 4
    assert ids(to_do(plan, records, "failed"))[0] == second.trial_id
    assert len(ids(to_do(plan, records, "failed"))) == 5
    assert to_do(plan, records, "all") == plan
    everything = [record_of(trial, Outcome.MISSING) for task in plan for trial in task.trials]
    assert to_do(plan, everything, "failed") == []


def test_17600_trials_are_planned_in_two_seconds(tmp_path):
    for number in range(44):
        write_operator(
            tmp_path / "pack", f"operator_{number:02d}", n=str(list(range(8, 28))), kernels=("torch", "b", "c", "d")
        )
    registry = registry_of(tmp_path / "pack", backends=("torch", "b", "c", "d", "e"))
    request = composed(registry, mode=["default", "tuned"], tune={"kind": "shared"})
    begun = time.process_time()
    tasks = make_plan(registry, run_config(request), CPU, {}, {})
    seconds = time.process_time() - begun
    assert len(ids(tasks)) == 17_600
    assert seconds < 2, f"{seconds:.2f} s"
