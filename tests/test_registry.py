"""Entry points are data: from what was announced to what is usable, with nothing hidden and nothing chosen arbitrarily."""

from __future__ import annotations

import sys
import types
from importlib.metadata import EntryPoint
from types import SimpleNamespace

import pytest
from packs import backend_class, pack_of, write_operator

from tilebench_core.backend import PLUGIN_API, Backend
from tilebench_core.errors import PluginError, RequestError
from tilebench_core.packs import KernelSource, Operator, scan_pack
from tilebench_core.plugins import BACKENDS, PACKS, Plugin, Provider, load_plugins
from tilebench_core.registry import Registry, build_registry, installed


def announced(
    name: str, distribution: str = "tilebench-one", group: str = BACKENDS, version: str = "1.0"
) -> EntryPoint:
    entry_point = EntryPoint(name, f"{distribution.replace('-', '_')}:thing", group)
    return entry_point._for(SimpleNamespace(name=distribution, version=version))


def sorted_out(*pairs: tuple[EntryPoint, object], group: str = BACKENDS, failures=()):
    values = {f"{entry_point.name}@{entry_point.value}": value for entry_point, value in pairs}
    return load_plugins(group, [entry_point for entry_point, _ in pairs], failures, values)


def test_a_backend_is_usable_under_the_name_it_was_announced_with():
    found, broken = sorted_out((announced("one"), backend_class("one")))
    assert [(plugin.name, str(plugin.provider)) for plugin in found] == [("one", "tilebench-one 1.0")]
    assert broken == []


def test_a_backend_of_another_api_is_broken_and_says_both_versions():
    found, broken = sorted_out((announced("one"), backend_class("one", api=PLUGIN_API + 1)))
    assert found == []
    assert broken[0].reason == (
        f"written for plugin API {PLUGIN_API + 1}, this TileBench has {PLUGIN_API}; install matching versions"
    )
    assert str(broken[0].provider) == "tilebench-one 1.0"


def test_a_plugin_that_cannot_be_imported_is_kept_with_its_reason_and_distribution():
    found, broken = sorted_out(failures=[(announced("moved", "tilebench-moved"), ImportError("no module named jit"))])
    assert found == []
    assert (broken[0].name, broken[0].reason) == ("moved", "ImportError: no module named jit")
    assert str(broken[0].provider) == "tilebench-moved 1.0"


def test_two_backends_of_one_name_are_both_broken_and_name_each_other():
    value = backend_class("one")
    found, broken = sorted_out((announced("one", "dist-a"), value), (announced("one", "dist-b"), value))
    assert found == []
    assert [plugin.reason for plugin in broken] == [
        "the name is also taken by dist-b 1.0; uninstall one",
        "the name is also taken by dist-a 1.0; uninstall one",
    ]


def test_a_duplicate_costs_nobody_else():
    pairs = [(announced("one", f"dist-{letter}"), backend_class("one")) for letter in "ab"]
    found, broken = sorted_out(*pairs, (announced("two", "dist-c"), backend_class("two")))
    assert [plugin.name for plugin in found] == ["two"]
    assert len(broken) == 2


@pytest.mark.parametrize("value", [object(), Backend, "text", SimpleNamespace(name="one")])
def test_what_is_no_backend_class_is_broken(value):
    found, broken = sorted_out((announced("one"), value))
    assert found == []
    assert len(broken) == 1


def test_a_backend_that_calls_itself_otherwise_is_broken():
    _, broken = sorted_out((announced("one"), backend_class("two")))
    assert broken[0].reason == "the entry point is called 'one' and the backend 'two'; they must agree"


def test_a_pack_has_to_be_a_package_of_this_api():
    package = types.ModuleType("pack")
    package.__path__ = ["/nowhere"]
    old = types.ModuleType("old")
    old.__path__, old.TILEBENCH_API = ["/nowhere"], PLUGIN_API - 1
    found, broken = sorted_out(
        (announced("good", "a", PACKS), package),
        (announced("module", "b", PACKS), types.ModuleType("plain")),
        (announced("old", "c", PACKS), old),
        group=PACKS,
    )
    assert [plugin.name for plugin in found] == ["good"]
    assert "is no Python package" in broken[0].reason
    assert f"written for plugin API {PLUGIN_API - 1}" in broken[1].reason


@pytest.mark.parametrize("spelling", ["My_Pack", "my.pack", "my--pack", "MY-PACK"])
def test_distributions_are_called_as_pypi_calls_them(spelling):
    found, _ = sorted_out((announced("one", spelling), backend_class("one")))
    assert found[0].provider.name == "my-pack"


def test_a_pack_is_found_by_paths_alone(tmp_path):
    write_operator(tmp_path / "pack", "alpha", kernels=("torch", "anydsl"))
    (tmp_path / "pack" / "_private").mkdir()
    (tmp_path / "pack" / ".hidden").mkdir()
    before = set(sys.modules)
    found = list(scan_pack(pack_of(tmp_path / "pack")))
    assert set(sys.modules) == before
    assert [type(item) for item in found] == [Operator, KernelSource, KernelSource]
    assert found[0].name == "alpha"
    assert [(kernel.backend, kernel.module) for kernel in found[1:]] == [
        ("anydsl", "pack.alpha.impl_anydsl"), ("torch", "pack.alpha.impl_torch"),
    ]  # fmt: skip


def test_kernels_of_several_providers_stand_side_by_side(tmp_path):
    write_operator(tmp_path / "first", "alpha", kernels=("torch", "anydsl"))
    (tmp_path / "second" / "alpha").mkdir(parents=True)
    (tmp_path / "second" / "alpha" / "impl_anydsl.py").write_text("")
    backend = Plugin("anydsl", backend_class("anydsl"), Provider("dsl", "1"))
    registry = build_registry([backend], [pack_of(tmp_path / "first", "a"), pack_of(tmp_path / "second", "b")], [])
    kernels = registry.kernels_for(registry.operators["alpha"], "anydsl")
    assert [str(kernel.provider) for kernel in kernels] == ["a 1.0", "b 1.0"]
    assert registry.broken == ()
    assert registry.kernel(registry.operators["alpha"], "anydsl") is kernels[0]
    assert registry.kernel(registry.operators["alpha"], "anydsl", "b") is kernels[1]
    with pytest.raises(RequestError, match="alpha on anydsl has no kernel by c; kernels come from a, b"):
        registry.kernel(registry.operators["alpha"], "anydsl", "c")


def test_an_operator_that_two_packs_define_is_broken_in_the_second(tmp_path):
    for name in ("first", "second"):
        write_operator(tmp_path / name, "alpha")
    registry = build_registry([], [pack_of(tmp_path / "first", "a"), pack_of(tmp_path / "second", "b")], [])
    assert str(registry.operators["alpha"].provider) == "a 1.0"
    assert registry.broken[0].reason == "operator 'alpha' is already defined by a 1.0"
    assert str(registry.broken[0].provider) == "b 1.0"


def test_a_malformed_config_breaks_its_operator_and_no_other(tmp_path):
    write_operator(tmp_path / "pack", "alpha", config="name: alpha\ncategory: [\n")
    write_operator(tmp_path / "pack", "beta")
    registry = build_registry([], [pack_of(tmp_path / "pack")], [])
    assert list(registry.operators) == ["beta"]
    assert "alpha/config.yaml:3: not valid YAML" in registry.broken[0].reason


def test_unknown_names_are_refused_with_the_nearest_match(tmp_path):
    write_operator(tmp_path / "pack", "layernorm")
    registry = build_registry(
        [Plugin("mydsl", backend_class("mydsl"), Provider("d", "1"))], [pack_of(tmp_path / "pack")], []
    )
    with pytest.raises(RequestError, match=r"unknown operator 'layer_norm'.* Did you mean 'layernorm'\?"):
        registry.operator("layer_norm")
    with pytest.raises(RequestError, match=r"unknown backend 'mydls'.* Did you mean 'mydsl'\?"):
        registry.backend("mydls")
    with pytest.raises(RequestError, match="pip install tilebench-other"):
        registry.backend("other")


def test_asking_for_a_broken_backend_tells_why_it_is_broken():
    _, broken = sorted_out(failures=[(announced("moved", "tilebench-moved"), ImportError("no module named jit"))])
    registry = Registry({}, {}, (), tuple(broken))
    with pytest.raises(RequestError, match=r"backend 'moved' of tilebench-moved 1.0 is broken: ImportError: no module"):
        registry.backend("moved")


def test_a_file_that_exports_no_kernel_or_operator_is_named(tmp_path, monkeypatch):
    write_operator(tmp_path / "packx", "alpha")
    (tmp_path / "packx" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    operator, kernel = scan_pack(pack_of(tmp_path / "packx"))
    with pytest.raises(PluginError, match=r"impl_torch.py: exports no `KERNEL = Kernel"):
        kernel.load()
    with pytest.raises(PluginError, match=r"operator.py: exports no `OPERATOR = Definition"):
        operator.load()


def test_pytorch_comes_through_the_same_door_as_everyone_else():
    registry = installed()
    assert {"torch", "torch_compile"} <= set(registry.backends)
    assert registry.backends["torch"].provider.name == "tilebench"
    softmax = registry.operator("softmax")
    assert registry.kernels_for(softmax, "torch_compile") == registry.kernels_for(softmax, "torch")
