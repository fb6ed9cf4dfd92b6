"""The best valid kernels of campaigns as a distribution: a provider like any other, to run beside hand-written kernels."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from tilebench_core.errors import RequestError
from tilebench_core.llm.archive import digest
from tilebench_core.llm.rounds import Trajectory
from tilebench_core.llm.run import trajectories_of
from tilebench_core.registry import installed

__all__ = ["export_pack"]

_PYPROJECT = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "{name}"
version = "{version}"
description = "Kernels for TileBench that {model} wrote"
dependencies = ["tilebench"]

[project.entry-points."tilebench.operator_packs"]
{name} = "{package}"

[tool.setuptools.packages.find]
where = ["src"]

[tool.setuptools.package-data]
"*" = ["*.json"]
"""

_KERNEL = """

# Added by `tilebench llm export`: the contract of a kernel around the candidate, which ends above.
if "KERNEL" not in globals():
    from tilebench_core import Kernel

    KERNEL = Kernel(run=run)
"""


def export_pack(
    campaigns: Sequence[Path], into: Path, name: str | None, model: str | None = None, condition: str | None = None
) -> tuple[Path, list[str]]:
    """Write the distribution below `into`; return its folder and a line per kernel.

    Each operator and backend gets the fastest clean candidate. Raises RequestError if there is none, if several models or
    conditions are mixed, or if the folder exists.
    """
    trajectories = [trajectory for folder in campaigns for _, trajectory in trajectories_of(folder)]
    wanted = [t for t in trajectories if model in (None, t.key["model"]) and condition in (None, t.key["condition"])]
    for word, given in (
        ("model", {t.key["model"] for t in wanted}),
        ("condition", {t.key["condition"] for t in wanted}),
    ):
        if len(given) > 1:
            raise RequestError(
                f"the campaigns hold several {word}s; choose one by --{word}: {', '.join(sorted(given))}"
            )
    best: dict[tuple[str, str], tuple[float, Trajectory, int]] = {}
    for trajectory in wanted:
        for backend in trajectory.key["backends"]:
            found = trajectory.best(backend)
            place = trajectory.key["operator"], backend
            if found is not None and (place not in best or found[1].score > best[place][0]):
                best[place] = found[1].score, trajectory, found[0]
    if not best:
        raise RequestError("no candidate of these campaigns is valid, so there is nothing to export")
    writer = next(iter(best.values()))[1].key["model"]
    chosen = name or "tilebench-llm-" + re.sub(r"[^a-z0-9]+", "-", writer.lower()).strip("-")
    package = chosen.replace("-", "_").replace(".", "_")
    root = into / chosen
    if root.exists():
        raise RequestError(f"{root} exists; nothing was written")
    return root, _write(root, chosen, package, writer, best)


def _write(
    root: Path, name: str, package: str, writer: str, best: dict[tuple[str, str], tuple[float, Trajectory, int]]
) -> list[str]:
    source_root = root / "src" / package
    source_root.mkdir(parents=True)
    provenance, lines, texts = [], [], []
    for (operator, backend), (_, trajectory, number) in sorted(best.items()):
        folder = source_root / installed().operator(operator).folder
        folder.mkdir(exist_ok=True)
        (folder / "__init__.py").write_text("", encoding="utf-8")
        source, attempt = trajectory.source(backend, number), trajectory.rounds[number].attempts[backend]
        (folder / f"impl_{backend}.py").write_text(source.rstrip("\n") + _KERNEL, encoding="utf-8")
        texts.append(source)
        provenance.append({
            **trajectory.key, "backend": backend, "round": number, "status": attempt.status.value, "verdict": attempt.verdict,
            "source_sha256": attempt.source_sha256, "speedup": attempt.speedup, "efficiency": attempt.efficiency,
            "device": trajectory.header["device"], "fingerprint": trajectory.header["fingerprint"],
        })  # fmt: skip
        lines.append(f"{operator} on {backend}: round {number + 1}, {attempt.status.value}")
    version = f"0+{digest(''.join(texts))[:12]}"
    (source_root / "__init__.py").write_text(
        f'"""Kernels that {writer} wrote; provenance.json says how."""\n', encoding="utf-8"
    )
    (source_root / "provenance.json").write_text(json.dumps(provenance, indent=1) + "\n", encoding="utf-8")
    (root / "pyproject.toml").write_text(
        _PYPROJECT.format(name=name, version=version, model=writer, package=package), encoding="utf-8"
    )
    return lines
