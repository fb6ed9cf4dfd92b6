"""Prompts: each one is rendered from scratch, out of the same material, for the round that is asked for."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.resources import files
from itertools import pairwise
from typing import Any

import yaml

from tilebench_core.case import Case
from tilebench_core.errors import RequestError
from tilebench_core.llm.archive import Archive
from tilebench_core.llm.attempts import Attempt
from tilebench_core.llm.protocol import PromptParts, Protocol
from tilebench_core.llm.reply import file_name
from tilebench_core.llm.rounds import Trajectory, file_in
from tilebench_core.operator_config import load_yaml
from tilebench_core.packs import Operator
from tilebench_core.registry import Registry

__all__ = ["TEMPLATES_VERSION", "Prompter", "reference_text"]

TEMPLATES_VERSION = 1
"""Changes with the wording or the order of the templates; prompts of different versions are not compared."""


def reference_text(registry: Registry, backend: str) -> str:
    """The API reference of a DSL: ours, or `llm_reference.md` in the package of a backend that brings its own."""
    ours = files("tilebench_core.llm") / "references" / f"{backend}.md"
    if ours.is_file():
        return ours.read_text(encoding="utf-8")
    package = registry.backend(backend).value.__module__.partition(".")[0]
    theirs = files(package) / "llm_reference.md"
    if theirs.is_file():
        return theirs.read_text(encoding="utf-8")
    raise RequestError(
        f"there is no API reference for backend {backend!r}; add llm_reference.md to the package {package}"
    )


@dataclass(frozen=True)
class Prompter:
    """Renders the prompts of one trajectory. `cases` are all that a candidate is judged by."""

    registry: Registry
    operator: Operator
    backends: tuple[str, ...]
    dtypes: tuple[str, ...]
    cases: Sequence[Case]
    protocol: Protocol
    parts: PromptParts
    device: str

    @cached_property
    def _templates(self) -> Any:
        from jinja2 import Environment, PackageLoader, StrictUndefined

        # Prompts are plain text: escaping for HTML would change the code in them.
        return Environment(
            loader=PackageLoader("tilebench_core.llm"), undefined=StrictUndefined, autoescape=False,
            keep_trailing_newline=True,
        )  # fmt: skip

    def _render(self, name: str, **values: Any) -> str:
        return str(self._templates.get_template(f"{name}.md.j2").render(**values)).strip()

    @cached_property
    def _material(self) -> Mapping[str, Any]:
        """What every prompt of the trajectory holds, whatever the round."""
        from tilebench_core.llm.descriptions import describe

        guide = files("tilebench_core.llm") / "references" / "framework.md"
        config = self.operator.config
        return {
            "operator": self.operator,
            "dtypes": self.dtypes,
            "device": self.device,
            "cases": self.cases,
            "protocol": self.protocol,
            "parts": self.parts,
            "guide": guide.read_text(encoding="utf-8").strip(),
            "description": describe(self.operator).strip(),
            "config_yaml": self._config_yaml(),
            "domain": {name: _values(values) for name, values in _axes(self.cases).items()},
            "pytorch": self._pytorch(),
            "dtype_names": config.dtypes,
        }

    def _config_yaml(self) -> str:
        """The operator's file, or, where the command line changed it, what it became."""
        path = self.operator.path.parent / "config.yaml"
        written, composed = load_yaml(path), dict(self.operator.config.raw)
        axes = {**composed, "case_grid": self.operator.config.axes}
        unchanged = axes == {**written, "case_grid": replace(self.operator.config, raw=written).axes}
        return (
            path.read_text(encoding="utf-8").strip() if unchanged else yaml.safe_dump(composed, sort_keys=False).strip()
        )

    def _pytorch(self) -> str:
        """The baseline's file, and the reference's function where the operator has one of its own."""
        source = self.registry.kernels_for(self.operator, "torch")[0].path.read_text(encoding="utf-8").strip()
        reference = self.operator.load().reference
        return (
            source
            if reference is None
            else f"{source}\n\n\n# What results are judged by:\n{inspect.getsource(reference)}".strip()
        )

    def initial(self, backends: Sequence[str]) -> str:
        """The prompt of a round without anything before it."""
        rows = [
            {"name": name, "file": file_name(name), "reference": reference_text(self.registry, name).strip()}
            for name in backends
        ]
        return self._render("initial", backends=rows, **self._material) + "\n"

    def prompt(self, trajectory: Trajectory, archive: Archive, number: int) -> str:
        """The prompt of round `number`, after the rounds before it."""
        earlier = [each for each in trajectory.rounds if each.number < number]
        frozen = {backend for each in earlier for backend in each.frozen_after}
        backends = [backend for backend in self.backends if backend not in frozen]
        if not earlier:
            return self.initial(backends)
        before = Trajectory(**{**trajectory.__dict__, "rounds": tuple(earlier)})
        feedback = archive.read(file_in(earlier[-1].number, "feedback.md")).strip()
        later = self._render(
            "later", number=number, protocol=self.protocol, history=self.history(before, backends), feedback=feedback,
            frozen=sorted(frozen), material=self.initial(backends),
        )  # fmt: skip
        return later + "\n"

    def history(self, trajectory: Trajectory, backends: Sequence[str]) -> str:
        """What a prompt tells about the rounds so far."""
        sources = [_sources(trajectory, backend) for backend in backends]
        if self.protocol.history == "trajectory":
            rows = [
                {
                    "round": number, "backend": backend, "status": attempt.status.value,
                    "share": _share(attempt.lowest_share), "speedup": _times(attempt.speedup),
                }
                for each in trajectory.rounds
                for backend, attempt in sorted(each.attempts.items())
                for number in [each.number]
            ]  # fmt: skip
            return self._render("history_trajectory", rows=rows, sources=sources)
        valid = [
            {"round": number, "runtime": _us(attempt.geomean_us)}
            for backend in backends
            for number, attempt in trajectory.attempts(backend)
            if attempt.status.is_clean
        ]
        return self._render("history_valid", valid=valid, sources=sources)

    def feedback(self, attempts: Mapping[str, Attempt], findings: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
        """What the next prompt tells about a round that has ended."""
        rows = [_feedback_row(attempt, findings.get(backend, ())) for backend, attempt in sorted(attempts.items())]
        return self._render(f"feedback_{self.protocol.feedback}", attempts=rows) + "\n"

    def fingerprint(self) -> str:
        """A hash of everything that shapes the prompts of this trajectory."""
        text = [str(TEMPLATES_VERSION), self.initial(self.backends)]
        folder = files("tilebench_core.llm") / "templates"
        text += [item.read_text(encoding="utf-8") for item in sorted(folder.iterdir(), key=lambda item: item.name)]
        return hashlib.sha256("\0".join(text).encode()).hexdigest()[:16]


def _feedback_row(attempt: Attempt, findings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    failing = next((case for case in attempt.cases if case.outcome not in ("PASSED", "NOT_RUN")), None)
    return {
        "backend": attempt.backend, "status": attempt.status.value, "reason": attempt.reason, "cases": attempt.cases,
        "passed": attempt.passed, "planned": attempt.planned, "runtime": _us(attempt.geomean_us) if attempt.geomean_us else None,
        "failing": failing, "diagnostic": attempt.diagnostic,
        "findings": [finding for finding in findings if finding["verdict"] in ("needs review", "violation")],
    }  # fmt: skip


def _sources(trajectory: Trajectory, backend: str) -> dict[str, Any]:
    """The last version of a backend's file, and the best clean one where that is another."""
    row: dict[str, Any] = {"file": file_name(backend), "last": None, "best": None}
    written = [each for each in trajectory.rounds if backend in each.sources]
    if written:
        last = written[-1]
        attempt = last.attempts.get(backend)
        row |= {
            "last": last.sources[backend].strip(), "last_round": last.number,
            "last_status": attempt.status.value if attempt else "not judged",
        }  # fmt: skip
    best = trajectory.best(backend)
    if best is not None and (not written or best[0] != written[-1].number):
        source = trajectory.source(backend, best[0]).strip()
        if source != row["last"]:
            row |= {"best": source, "best_round": best[0]}
    return row


def _axes(cases: Sequence[Case]) -> dict[str, list[Any]]:
    axes: dict[str, list[Any]] = {}
    for case in cases:
        for name, value in case.params.items():
            if value not in axes.setdefault(name, []):
                axes[name].append(value)
    return axes


def _values(values: Sequence[Any]) -> str:
    """A parameter's values as a person writes them: a progression by its step, others in full."""
    if len(values) > 4 and all(isinstance(value, int) for value in values):
        steps = {second - first for first, second in pairwise(values)}
        if len(steps) == 1:
            return f"{values[0]}, {values[1]}, …, {values[-1]} ({len(values)} values, in steps of {steps.pop()})"
    return ", ".join(map(str, values))


def _share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def _times(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f} ×"


def _us(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
