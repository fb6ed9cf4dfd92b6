"""A stand-in for Nsight Compute and its `ncu_report` module: reports are JSON, and failures come on request.

`FAKE_NCU` names a JSON file that says what the next runs do: `version`, `prints`, `status`, `actions` (the launches that
the report holds), `cut` (bytes of the report that are kept), `unknown` (metrics that it does not know), `sleep_s`.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path

PROGRAM = """#!{python}
import json, os, sys, time
said = json.load(open(os.environ["FAKE_NCU"]))
if sys.argv[1:] == ["--version"]:
    print("NVIDIA (R) Nsight Compute Command Line Profiler\\nVersion %s (build 1)" % said.get("version", "2025.3.1.0"))
    sys.exit(0)
with open(os.environ["FAKE_NCU"] + ".calls", "a") as calls:
    calls.write(json.dumps(sys.argv[1:]) + "\\n")
time.sleep(said.get("sleep_s", 0))
asked = sys.argv[sys.argv.index("--metrics") + 1].split(",")
for name in said.get("unknown", ()):
    if name in asked:
        print("==ERROR== Failed to find metric regex:^%s(\\\\.(sum|avg))?$" % name.split(".")[0])
        sys.exit(1)
print(said.get("prints", "==PROF== Connected to process 1"))
text = json.dumps(said.get("actions", []))
if said.get("report", True):
    open(sys.argv[sys.argv.index("--export") + 1], "w").write(text[: said.get("cut", len(text))])
sys.exit(said.get("status", 0))
"""

MODULE = """
import json


class Ids:
    def __init__(self, ids): self.ids = ids
    def as_uint64(self, i): return self.ids[i]
    def as_string(self, i): return self.ids[i]


class Metric:
    def __init__(self, value):
        self.instances = list(value.items()) if isinstance(value, dict) else []
        self.single = None if isinstance(value, dict) else value
    def value(self): return self.single
    def has_correlation_ids(self): return bool(self.instances)
    def correlation_ids(self): return Ids([int(k) if k.isdigit() else k for k, _ in self.instances])
    def num_instances(self): return len(self.instances)
    def as_double(self, i): return float(self.instances[i][1])


class Domain:
    def __init__(self, names): self.names = names
    def push_pop_ranges(self): return tuple(self.names)


class State:
    def __init__(self, names): self.names = names
    def domains(self): return (0,)
    def domain_by_id(self, number): return Domain(self.names)


class Source:
    def file_name(self): return "kernel.py"
    def line(self): return 7


class Action:
    NameBase_FUNCTION, NameBase_DEMANGLED, NameBase_MANGLED = 0, 1, 2
    def __init__(self, raw): self.raw = raw
    def name(self, base): return self.raw["name"]
    def metric_by_name(self, name):
        return Metric(self.raw["metrics"][name]) if name in self.raw["metrics"] else None
    def metric_names(self): return tuple(self.raw["metrics"])
    def nvtx_state(self): return State(self.raw["ranges"]) if self.raw["ranges"] else None
    def sass_by_pc(self, address): return "FADD R1, R2, R3" if address >= 4096 else ""
    def source_info(self, address): return Source()


class Range:
    def __init__(self, actions): self.actions = actions
    def num_actions(self): return len(self.actions)
    def action_by_idx(self, index): return self.actions[index]


class Context:
    def __init__(self, actions): self.actions = actions
    def num_ranges(self): return 1 if self.actions else 0
    def range_by_idx(self, number): return Range(self.actions)


def load_report(path):
    return Context([Action(raw) for raw in json.load(open(path))])
"""


def install_fake_ncu(folder: Path) -> Path:
    """Put both into `folder` as an installation of Nsight Compute has them, and return ncu's path."""
    (folder / "extras" / "python").mkdir(parents=True)
    (folder / "extras" / "python" / "ncu_report.py").write_text(MODULE)
    ncu = folder / "ncu"
    ncu.write_text(PROGRAM.format(python=sys.executable))
    ncu.chmod(ncu.stat().st_mode | stat.S_IXUSR)
    return ncu


def tell(folder: Path, **says: object) -> None:
    """What the fake does from now on."""
    os.environ["FAKE_NCU"] = str(folder / "says.json")
    (folder / "says.json").write_text(json.dumps(says))


def calls(folder: Path) -> list[list[str]]:
    """The command lines that it was run with."""
    path = folder / "says.json.calls"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []
