"""The compliance check of a candidate: what its text says about imports, delegation, state, tuning and the rest.

The check reads, it never runs. It finds patterns; that it finds none is no evidence of honesty, and the runtime checks
(new values at the same address, poisoned outputs, a kernel on the device, the guard) decide what it cannot see.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from importlib.resources import files
from typing import Any

import yaml

from tilebench_core.errors import RequestError

__all__ = ["Compliance", "Finding", "Rules", "Verdict", "check_source", "rules_for"]


class Verdict(IntEnum):
    """From harmless to forbidden; a candidate has the gravest verdict of its findings."""

    CLEAR = 0
    NOTED = 1
    NEEDS_REVIEW = 2
    VIOLATION = 3

    @property
    def text(self) -> str:
        """As configurations and reports spell it: "needs review"."""
        return self.name.lower().replace("_", " ")


@dataclass(frozen=True, order=True)
class Finding:
    """One pattern in the text: where, which rule, how grave, and what was found."""

    line: int
    rule: str
    verdict: Verdict
    message: str


@dataclass(frozen=True, kw_only=True)
class Compliance:
    """The findings of one candidate, by line."""

    findings: tuple[Finding, ...]

    @property
    def verdict(self) -> Verdict:
        """The gravest of all findings."""
        return max((finding.verdict for finding in self.findings), default=Verdict.CLEAR)

    def to_json(self) -> dict[str, Any]:
        """As it is archived."""
        rows = [{**finding.__dict__, "verdict": finding.verdict.text} for finding in self.findings]
        return {"verdict": self.verdict.text, "findings": rows}


@dataclass(frozen=True)
class Rules:
    """The common rules and those of one DSL, as their files say."""

    common: Mapping[str, Any]
    dsl: Mapping[str, Any]

    def torch(self, path: str) -> tuple[Verdict, str]:
        """What the use of a PyTorch name in host code is, and the rule that says so."""
        table = self.common["torch"]
        for rule, patterns in table["violation"].items():
            if matches(path, patterns):
                return Verdict.VIOLATION, rule
        for name, verdict in (("clear", Verdict.CLEAR), ("noted", Verdict.NOTED), ("review", Verdict.NEEDS_REVIEW)):
            if matches(path, table[name]):
                return verdict, "pytorch"
        return Verdict.VIOLATION, "delegation"

    def method(self, name: str) -> tuple[Verdict, str]:
        """What calling a method of a tensor in host code is."""
        table = self.common["methods"]
        if name in table["metadata"] or name in table["clear"]:
            return Verdict.CLEAR, "pytorch"
        if name in table["noted"]:
            return Verdict.NOTED, "pytorch"
        if name in table["review"]:
            return Verdict.NEEDS_REVIEW, "pytorch"
        return Verdict.VIOLATION, "delegation"

    def of_dsl(self, path: str) -> tuple[Verdict, str]:
        """What the use of a name of the DSL is, anywhere. `clear` stands above the rest."""
        if matches(path, self.dsl.get("clear", ())) or any(
            known.startswith(f"{path}.") for known in self.dsl.get("clear", ())
        ):
            return Verdict.CLEAR, "dsl"
        for rule, patterns in self.dsl["violation"].items():
            if matches(path, patterns):
                return Verdict.VIOLATION, rule
        if matches(path, self.dsl["review"]):
            return Verdict.NEEDS_REVIEW, "dsl"
        return (Verdict.NOTED, "dsl") if matches(path, self.dsl["noted"]) else (Verdict.CLEAR, "dsl")


def matches(path: str, patterns: Iterable[str]) -> bool:
    """True if a dotted path is one of `patterns`, or below one that ends in `*`."""
    for pattern in patterns:
        if pattern.endswith("*"):
            stem = pattern[:-1]
            if path.startswith(stem) or path == stem.rstrip("."):
                return True
        elif path == pattern:
            return True
    return False


@lru_cache
def rules_for(backend: str) -> Rules:
    """The rules for candidates of `backend`; raise RequestError where there are none for this DSL."""
    folder = files("tilebench_core.llm") / "rules"
    mine = folder / f"{backend}.yaml"
    if backend == "common" or not mine.is_file():
        from tilebench_core.registry import installed

        plugin = installed().backends.get(backend)
        package = plugin.value.__module__.partition(".")[0] if plugin else ""
        if not package or not (mine := files(package) / "llm_rules.yaml").is_file():
            raise RequestError(
                f"there are no compliance rules for backend {backend!r}: no llm_rules.yaml in its package"
            )
    common = yaml.safe_load((folder / "common.yaml").read_text(encoding="utf-8"))
    return Rules(common, yaml.safe_load(mine.read_text(encoding="utf-8")))


def check_source(source: str, backend: str) -> Compliance:
    """Check the text of a candidate for `backend`. Text that does not parse is a violation of its own."""
    from tilebench_core.llm.compliance_host import host_findings
    from tilebench_core.llm.compliance_names import read_module
    from tilebench_core.llm.compliance_state import state_findings

    rules = rules_for(backend)
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None) or 1
        return Compliance(findings=(Finding(line, "syntax", Verdict.VIOLATION, f"{type(error).__name__}: {error}"),))
    module = read_module(tree, rules)
    found = {*host_findings(tree, module, rules), *state_findings(tree, module, rules)}
    return Compliance(findings=tuple(sorted(found)))
