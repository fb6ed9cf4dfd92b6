"""From overrides to a typed configuration; every wrong input is one line with the nearest match, before any work."""

from __future__ import annotations

import itertools
import re

import pytest
from packs import registry_of, write_operator

from tilebench_core.cli import main
from tilebench_core.compose import compose, conf_dir
from tilebench_core.config import RunConfig, run_config
from tilebench_core.errors import ConfigError
from tilebench_core.operator_config import load_yaml
from tilebench_core.registry import installed

WRONG = [
    ("operator=sofmax", r"unknown operator 'sofmax'.* Did you mean 'softmax'\?"),
    ("operator=[softmax,vector_ad]", r"unknown operator 'vector_ad'.* Did you mean 'vector_add'\?"),
    ("backend=torhc", r"unknown backend 'torhc'.* Did you mean 'torch'\?"),
    ("dtype=fp61", r"no chosen operator has dtype 'fp61'.* Did you mean 'fp16'\?"),
    ("dtype=int8", r"no chosen operator has dtype 'int8'; they have fp16, fp32"),
    ("timing.repeet=3", r"unknown key 'timing.repeet'. Did you mean 'timing.repeat'\?"),
    ("limits.runs=3", r"unknown key 'limits.runs'. Did you mean 'limits.run_s'\?"),
    ("campain=x", r"unknown key 'campain'. Did you mean 'campaign'\?"),
    ("+campain=x", r"campain"),
    (
        "backends.torch_compile.mood=x",
        r"unknown key 'backends.torch_compile.mood'. Did you mean 'backends.torch_compile.mode'",
    ),
    ("operators.softmax.case_grid.col=[5]", r"unknown key .* Did you mean 'operators.softmax.case_grid.cols'\?"),
    ("timing=papr", r"unknown timing 'papr'; expected one of .*paper.* Did you mean 'paper'\?"),
    ("tracking=sqllite", r"unknown tracking 'sqllite'.* Did you mean 'sqlite'\?"),
    ("experiment=papr", r"unknown experiment 'papr'.* Did you mean 'paper'\?"),
    ("suite=smok", r"unknown suite 'smok'.* Did you mean 'smoke'\?"),
    ("device=cdua", r"unknown device 'cdua'; expected one of .*cuda.* Did you mean 'cuda'\?"),
    ("device.name=gpu0", r"unknown device 'gpu0'; expected one of auto, cpu, cuda, cuda:0"),
    ("device.name=cuda:99", r"device 'cuda:99' is not there: NVML shows \d+ GPUs; try device=cpu"),
    ("cases=99", r"case 99 of softmax: expected an index from 0 to 19"),
    ("cases=0,99", r"case 99 of softmax: expected an index from 0 to 19"),
    ("cases=egde", r"cases='egde': expected grid, edge, .* Did you mean 'edge'\?"),
    ("mode=fast", r"mode='fast'|mode"),
    ("mode=tuned", r"mode=tuned needs a way to tune; add tune=shared"),
    ("tune=replay", r"tune=replay needs tune.from_campaign=CAMPAIGN"),
    ("timing.repeat=many", r"timing.repeat='many': .*integer"),
    ("timing.repeat=0", r"timing.repeat=0; expected a positive number"),
    ("timing.cold=perhaps", r"timing.cold='perhaps': .*boolean"),
    ("rerun=some", r"rerun='some': .*'none', 'failed' or 'all'"),
    ("campaign=a/b", r"campaign='a/b': expected a plain name; results_dir="),
    ("operators.softmax.category=nonsense", r"softmax/config.yaml:2: category: 'nonsense'; expected one of pointwise"),
    ("operators.softmax.verify.fp16.atol=abc", r"softmax/config.yaml: verify.fp16: cannot evaluate 'abc'"),
    ("operators.softmax.metrics.flops_expr=rows.real", r"metrics.flops_expr: cannot evaluate 'rows.real'"),
    ("operators.softmax.case_grid.cols=5", r"case_grid.cols: 5 is no list"),
    ("operator=[softmax", r"\[softmax"),
    ("softmax", r"'softmax': expected key=value, such as operator=\[softmax\]"),
    ("--repeat=3", r"'--repeat=3': expected key=value"),
]


@pytest.mark.parametrize(("override", "message"), WRONG, ids=[override for override, _ in WRONG])
def test_a_wrong_request_is_one_line_and_status_2_before_any_work(override, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    given = [override] if "operator=" in override else ["operator=softmax", override]
    assert main(["run", "backend=torch", *given] if "backend=" not in override else ["run", *given]) == 2
    said = capsys.readouterr()
    assert said.err.startswith("tilebench: ")
    assert said.err.count("\n") == 1
    assert re.search(message, said.err), said.err
    assert list(tmp_path.rglob("records.jsonl")) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rnu"], r"unknown command 'rnu'; expected one of run, list, .* Did you mean 'run'\?"),
        (["report", "nowhere"], r"no campaign 'nowhere' here; expected a folder or one of: none yet"),
        (["compare", "a", "b"], r"no campaign 'a' here"),
        (["new", "kernel", "softmax"], r"'softmax': expected OPERATOR:BACKEND"),
        (["new", "kernel", "softmax:nothing"], r"unknown backend 'nothing'"),
        (["new", "kernel", "sofmax:torch"], r"unknown operator 'sofmax'.* Did you mean 'softmax'\?"),
        (["new", "operator", "Bad-Name"], r"'Bad-Name': expected lower-case letters, digits and underscores"),
        (["run", "-m", "operator=sofmax,softmax"], r"unknown operator 'sofmax'.* Did you mean 'softmax'\?"),
        (
            ["run", "-m", "operator=softmax", "timing.repeet=1,2"],
            r"unknown key 'timing.repeet'. Did you mean 'timing.repeat'",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_every_command_refuses_what_is_not_there(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert re.search(message, said), said
    assert said.count("\n") == 1


@pytest.fixture
def small(tmp_path):
    write_operator(tmp_path / "pack", "alpha", kernels=("torch", "one"))
    write_operator(tmp_path / "pack", "beta")
    return registry_of(tmp_path / "pack")


def typed(registry, *overrides) -> RunConfig:
    return run_config(compose(registry, list(overrides)))


def test_without_overrides_everything_installed_is_chosen(small):
    config = typed(small)
    assert list(config.operators) == ["alpha", "beta"]
    assert list(config.backends) == ["torch", "one"] or list(config.backends) == ["one", "torch"]
    assert config.modes == ("default",)
    assert config.chosen_cases == ("grid",)


@pytest.mark.parametrize(
    ("overrides", "what", "value"),
    [
        (["operator=alpha"], lambda c: list(c.operators), ["alpha"]),
        (["operator=[beta,alpha]"], lambda c: list(c.operators), ["beta", "alpha"]),
        (["operator=alpha,beta"], lambda c: list(c.operators), ["alpha", "beta"]),
        (["backend=one"], lambda c: list(c.backends), ["one"]),
        (["dtype=fp16,fp32"], lambda c: c.dtypes, ("fp16", "fp32")),
        (["dtype=fp16"], lambda c: c.dtypes, ("fp16",)),
        (["cases=0,1,3"], lambda c: c.chosen_cases, (0, 1, 3)),
        (["cases=[grid,edge]"], lambda c: c.chosen_cases, ("grid", "edge")),
        (["cases=largest"], lambda c: c.chosen_cases, ("largest",)),
        (["mode=[default,tuned]", "tune=shared"], lambda c: (c.modes, c.tune.kind), (("default", "tuned"), "shared")),
        (["timing=paper"], lambda c: (c.timing.clock, c.timing.warmup, c.timing.repeat), ("proton", 20, 100)),
        (["timing=paper", "timing.repeat=7"], lambda c: c.timing.repeat, 7),
        (["experiment=paper"], lambda c: (c.timing.name, c.modes), ("paper", ("default", "tuned"))),
        (["device=cpu"], lambda c: c.device.name, "cpu"),
        (["tracking=server", "tracking.uri=http://host:5000"], lambda c: c.tracking.uri, "http://host:5000"),
        (["operators.alpha.case_grid.n=[4096]"], lambda c: c.operators["alpha"]["case_grid"]["n"], [4096]),
        (["campaign=x", "results_dir=y"], lambda c: (c.campaign, c.results_dir), ("x", "y")),
        (["limits.run_s=1.5", "worker.recycle_after=3"], lambda c: (c.limits.run_s, c.worker.recycle_after), (1.5, 3)),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) and value and "=" in str(value[0]) else None,
)
def test_overrides_choose_one_or_many_of_everything(small, overrides, what, value):
    assert what(typed(small, *overrides)) == value


def test_no_hydra_object_exists_past_composition(small):
    def plain(value):
        if isinstance(value, dict):
            return all(isinstance(key, str) and plain(item) for key, item in value.items())
        if isinstance(value, list):
            return all(plain(item) for item in value)
        return value is None or type(value) in (bool, int, float, str)

    composed = compose(small, [])
    assert plain(composed)
    assert "hydra" not in composed


def test_every_file_of_the_configuration_composes():
    registry = installed()
    more = {"replay": ["tune.from_campaign=x"], "server": ["tracking.uri=http://host"]}
    files = {group: sorted((conf_dir() / group).glob("*.yaml")) for group in ("timing", "tune", "device", "tracking")}
    for together in itertools.zip_longest(
        *files.values()
    ):  # composing takes a second: one file of each group at a time
        chosen = {group: path.stem for group, path in zip(files, together, strict=True) if path is not None}
        overrides = ["operator=softmax", "backend=torch", *(f"{group}={name}" for group, name in chosen.items())]
        overrides += [extra for name in chosen.values() for extra in more.get(name, [])]
        assert run_config(compose(registry, overrides)).operators
    for group in ("suite", "experiment"):
        for path in sorted((conf_dir() / group).glob("*.yaml")):
            assert run_config(compose(registry, [f"{group}={path.stem}", "backend=torch"])).operators


def test_the_files_of_a_group_have_the_same_keys():
    for group in ("timing", "tune", "tracking"):
        keys = {path.stem: set(load_yaml(path)) for path in (conf_dir() / group).glob("*.yaml")}
        assert len({frozenset(value) for value in keys.values()}) == 1, keys


def test_an_unknown_key_is_an_error_also_without_hydra(small):
    composed = compose(small, [])
    with pytest.raises(ConfigError, match=r"timing.repeet=3: .*[Uu]nexpected"):
        run_config({**composed, "timing": {**composed["timing"], "repeet": 3}})
