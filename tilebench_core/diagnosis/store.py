"""What diagnosis keeps in a campaign's folder: `diagnosis/profiles.jsonl`, `inspections.jsonl`, code/, reports/, pages/."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tilebench_core.diagnosis.inspection import Inspection
from tilebench_core.diagnosis.profiles import Profile, profile_from_json, profile_to_json
from tilebench_core.diagnosis.show import write_code
from tilebench_core.errors import ConfigError

__all__ = ["FOLDER", "keep_inspections", "keep_profile", "kept_inspections", "kept_profiles", "tracked_metrics"]

FOLDER = "diagnosis"
_PROFILES, _INSPECTIONS = "profiles.jsonl", "inspections.jsonl"


def _lines(path: Path) -> Iterable[str]:
    return [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()] if path.is_file() else []


def _append(path: Path, lines: Sequence[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    torn = path.is_file() and not path.read_bytes().endswith(b"\n") and path.stat().st_size > 0
    with path.open("a", encoding="utf-8") as file:
        file.write("\n" if torn else "")  # a crash in mid-write: keep the torn line apart
        file.writelines(line + "\n" for line in lines)


def keep_profile(campaign: Path, profile: Profile) -> None:
    """Append a profile; a later one of the same job replaces an earlier one when they are read."""
    _append(campaign / FOLDER / _PROFILES, [profile_to_json(profile)])


def kept_profiles(campaign: Path) -> dict[str, Profile]:
    """The last profile of each job, by the job's key; lines that a crash left unfinished are passed over."""
    found: dict[str, Profile] = {}
    for line in _lines(campaign / FOLDER / _PROFILES):
        try:
            profile = profile_from_json(line)
        except ConfigError:
            raise
        except (ValueError, TypeError, KeyError):  # a torn line; its job has no profile and is run again
            continue
        found.pop(profile.job.key, None)
        found[profile.job.key] = profile
    return found


def keep_inspections(campaign: Path, inspections: Sequence[Inspection]) -> None:
    """Keep the numbers of inspections, and every stage of their code below code/."""
    folder = campaign / FOLDER
    write_code([inspection for inspection in inspections if inspection.kernels], folder / "code")
    _append(folder / _INSPECTIONS, [json.dumps(inspection.as_json(), default=str) for inspection in inspections])


def kept_inspections(campaign: Path) -> list[dict[str, Any]]:
    """The last inspection of each (operator, dtype, backend, arch, configuration), as `Inspection.as_json` wrote it."""
    found: dict[str, dict[str, Any]] = {}
    for line in _lines(campaign / FOLDER / _INSPECTIONS):
        try:
            values = json.loads(line)
            names = ("operator", "dtype", "params", "backend", "arch", "config")
            found[json.dumps([values[name] for name in names])] = values
        except (ValueError, KeyError):  # a torn line
            continue
    return list(found.values())


_TRACKED = ("instructions", "issue_active_pct", "dram_throughput_pct", "l2_hit_pct", "occupancy_achieved_pct",
            "tensor_active_pct", "bank_conflicts", "registers", "waves")  # fmt: skip


def tracked_metrics(campaign: Path) -> Mapping[tuple[str, str, str, str], dict[str, float]]:
    """What MLflow shows of the verified profiles, by (operator, dtype, backend, mode); a missing value is left out."""
    found = {}
    for profile in kept_profiles(campaign).values():
        if profile.verified:
            values = {name: profile.total(name) for name in _TRACKED} | {"dram_bytes": profile.dram_bytes}
            job = profile.job
            found[job.operator, job.dtype, job.backend, job.mode] = {
                f"ncu.{name}": float(value) for name, value in values.items() if value is not None
            }
    return found
