"""The one door to Hydra: from overrides on the command line to a plain mapping, and sweeps over several."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tilebench_core.campaign import dated_name
from tilebench_core.errors import ConfigError, TilebenchError, nearest
from tilebench_core.operator_config import load_yaml
from tilebench_core.registry import Registry

__all__ = ["compose", "conf_dir", "run_sweep"]

_PRIMARY = "tilebench"
_LLM = "tilebench_llm"
_MANY = ("operator", "backend", "cases", "dtype", "mode")


def conf_dir() -> Path:
    """The folder that holds `config.yaml` and the configuration groups."""
    import tilebench_core.conf as conf

    return Path(next(iter(conf.__path__)))


def _plain(overrides: Sequence[str], key: str) -> list[str] | None:
    """The values of a plain `key=value` or `key=[a,b]` override, or None if there is none."""
    values = [item.partition("=")[2] for item in overrides if item.partition("=")[0].lstrip("+") == key]
    return re.findall(r"[\w.\-]+", values[-1]) if values else None


def _primary_file(primary: str) -> Path:
    return conf_dir() / ("llm/config.yaml" if primary == _LLM else "config.yaml")


def _register(registry: Registry, primary_name: str) -> None:
    """Hand every operator's configuration and every backend's options to Hydra's ConfigStore, and the primary config."""
    from hydra.core.config_store import ConfigStore

    store = ConfigStore.instance()
    names = {}
    for operator in registry.operators.values():
        names[operator.name] = operator.folder
        # Axes are handed over as lists: an override such as case_grid.cols=[4096] cannot replace a mapping.
        node = {**operator.config.raw, "case_grid": operator.config.axes}
        store.store(group="operator", name=operator.name, node=node, package=f"operators.{operator.folder}")
        if operator.folder != operator.name:
            store.store(group="operator", name=operator.folder, node=node, package=f"operators.{operator.folder}")
    for name, plugin in registry.backends.items():
        defaults = asdict(plugin.value.Options())
        store.store(group="backend", name=name, node=defaults, package=f"backends.{name}")
    primary = load_yaml(_primary_file(primary_name))
    installed = {"operator": list(names), "backend": list(registry.backends)}
    for entry in primary["defaults"] if primary_name == _PRIMARY else ():
        if isinstance(entry, dict):
            for group in entry.keys() & installed.keys():
                entry[group] = installed[group]
    for path in (conf_dir() / "llm").glob("*/*.yaml") if primary_name == _LLM else ():  # protocol= and model=
        store.store(group=path.parent.name, name=path.stem, node=load_yaml(path), package=path.parent.name)
    primary.setdefault("operators", {})
    primary.setdefault("backends", {})
    store.store(name=primary_name, node=primary)


def _listed(override: str) -> str:
    """Read `cases=0,1,3` as a list where a key takes many: without -m a comma cannot mean a sweep."""
    key, _, value = override.partition("=")
    return f"{key}=[{value}]" if key in _MANY and "," in value and value[0] not in "[{(" else override


def _check_choices(registry: Registry, overrides: Sequence[str]) -> None:
    """Refuse unknown operators and backends with the nearest match, before Hydra does so in its own words."""
    for name in _plain(overrides, "operator") or []:
        if "," not in name:
            registry.operator(name)
    for name in _plain(overrides, "backend") or []:
        registry.backend(name)


@contextlib.contextmanager
def _initialised(registry: Registry, primary: str) -> Iterator[None]:
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    GlobalHydra.instance().clear()
    _register(registry, primary)
    with initialize_config_dir(str(conf_dir()), version_base="1.3", job_name="tilebench"):
        yield


def compose(registry: Registry, overrides: Sequence[str], *, llm: bool = False) -> dict[str, Any]:
    """Compose the configuration of one run, or of one run of the LLM track, as plain Python values.

    Raises ConfigError in one line.
    """
    from hydra import compose as hydra_compose
    from omegaconf import OmegaConf

    overrides = [_listed(override) for override in overrides]
    primary = _LLM if llm else _PRIMARY
    _check_choices(registry, overrides)
    with _initialised(registry, primary), _translated(registry, primary):
        composed = OmegaConf.to_container(hydra_compose(primary, list(overrides)), resolve=True, throw_on_missing=True)
    assert isinstance(composed, dict)
    return _without_groups({str(key): value for key, value in composed.items()})


def _without_groups(composed: dict[str, Any]) -> dict[str, Any]:
    """Drop what only steered the composition."""
    return {key: value for key, value in composed.items() if key not in ("hydra", "suite", "experiment")}


@contextlib.contextmanager
def _translated(registry: Registry, primary: str) -> Iterator[None]:
    """Turn the errors of Hydra and OmegaConf into one line each, with the nearest key."""
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    try:
        yield
    except (HydraException, OmegaConfBaseException) as error:
        text = " ".join(line.strip() for line in str(error).splitlines() if line.strip())
        if type(error).__name__ == "MissingMandatoryValue":
            text = f"Missing mandatory value: {getattr(error, 'full_key', None) or text.split()[-1]}"
        raise ConfigError(_one_line(text, registry, primary)) from error


def _one_line(text: str, registry: Registry, primary: str) -> str:
    missing = re.search(r"Could not override '([^']+)'", text) or re.search(r"Key '([^']+)' is not in struct", text)
    if missing:
        key, command = missing.group(1), "tilebench llm run" if primary == _LLM else "tilebench run"
        return f"unknown key {key!r}.{nearest(key, _known_keys(registry, primary))} `{command} --help` lists the keys"
    choice = re.search(r"Could not find '(\w+)/([^']+)'", text)
    if choice:
        group, name = choice.groups()
        names = [
            path.stem for path in (*(conf_dir() / group).glob("*.yaml"), *(conf_dir() / "llm" / group).glob("*.yaml"))
        ]
        return f"unknown {group} {name!r}; expected one of {', '.join(sorted(names))}.{nearest(name, names)}"
    chosen = re.search(r"You must specify '(\w+)'", text)
    if chosen:
        names = [path.stem for path in (conf_dir() / "llm" / chosen.group(1)).glob("*.yaml")]
        return f"{chosen.group(1)} has no value; add {chosen.group(1)}=..., one of {', '.join(sorted(names))}"
    unset = re.search(r"Missing mandatory value: (\S+)", text)
    if unset:
        return f"{unset.group(1)} has no value; add {unset.group(1)}=..."
    return text[:400]


def _known_keys(registry: Registry, primary_name: str) -> list[str]:
    """Every key that can be overridden, dotted."""
    keys = ["operator", "backend", "suite", "experiment"]

    def walk(prefix: str, node: Any) -> None:
        for key, value in (node or {}).items() if isinstance(node, Mapping) else ():
            keys.append(f"{prefix}{key}")
            walk(f"{prefix}{key}.", value)

    primary = load_yaml(_primary_file(primary_name))
    walk("", {key: value for key, value in primary.items() if key not in ("defaults", "hydra")})
    groups = (
        ("timing", "device", "llm/protocol", "llm/model")
        if primary_name == _LLM
        else ("timing", "tune", "device", "tracking")
    )
    for group in groups:
        name = group.removeprefix("llm/")
        keys.append(name)
        walk(f"{name}.", load_yaml(next((conf_dir() / group).glob("*.yaml"))))
    for operator in registry.operators.values():
        walk(f"operators.{operator.folder}.", operator.config.raw)
    for name, plugin in registry.backends.items():
        walk(f"backends.{name}.", asdict(plugin.value.Options()))
    return keys


def run_sweep(
    registry: Registry, overrides: Sequence[str], job: Callable[[dict[str, Any]], int], *, llm: bool = False
) -> int:
    """Run `job` for every combination of a sweep (`-m`) through Hydra's launcher, and return the worst exit status."""
    from hydra.core.global_hydra import GlobalHydra
    from omegaconf import OmegaConf

    _check_choices(registry, overrides)
    campaign = dated_name()  # one for the whole sweep

    def one(config: Any) -> int:
        composed = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
        assert isinstance(composed, dict)
        composed["campaign"] = composed["campaign"] or campaign
        try:
            return job(_without_groups({str(key): value for key, value in composed.items()}))
        except TilebenchError as error:  # a launcher's process cannot hand our errors back; the status can
            print(f"tilebench: {error}", file=sys.stderr)
            return 2

    primary = _LLM if llm else _PRIMARY
    with _initialised(registry, primary), _translated(registry, primary):
        hydra = GlobalHydra.instance().hydra
        assert hydra is not None
        # Not by hydra.main: what it runs returns nothing, and it ends the process over an error in words of its own.
        batches = hydra.multirun(
            config_name=primary, task_function=one, overrides=list(overrides), with_log_configuration=False
        )
    return max((done.return_value for batch in batches for done in batch), default=0)
