"""The habits of style.md that a machine can check: one door per dependency, layers, and imports that cost nothing."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CORE = ROOT / "tilebench_core"
HEAVY = {
    "torch",
    "mlflow",
    "triton",
    "cuda",
    "tilelang",
    "numpy",
    "pandas",
    "matplotlib",
    "hydra",
    "omegaconf",
    "cupti",
}
DSLS = re.compile(r"triton|cutile|cuda\.tile|tilelang", re.IGNORECASE)

# Who may import what: one door each.
DOORS = {
    "stevedore": {"plugins.py"},
    "hydra": {"compose.py"},
    "omegaconf": {"compose.py"},
    "simpleeval": {"expressions.py"},
    "openai": {"llm/providers/openai_compatible.py"},
    "anthropic": {"llm/providers/anthropic_messages.py"},
}
ROOMS = {
    "mlflow": "tracking/",
    "matplotlib": ("figures/", "report/paper.py"),
    "pynvml": ("devices.py", "doctor.py", "timing/", "worker/"),
    "cupti": "timing/",
    "filelock": ("jobs.py", "tune/store.py", "tracking/"),
}

# From the bottom to the top; a module imports from its own layer and from those below.
LAYERS = [
    {"errors", "outcomes", "dtypes", "case", "device", "kernel", "tolerance", "expressions"},
    {"backend", "definition", "operator_config", "records", "timing", "config", "roofline"},
    {"plugins", "packs", "registry", "verify", "campaign", "devices", "environment", "pytorch"},
    {"plan", "compose", "analysis"},
    {"worker", "tune", "run", "precompile"},
    {"diagnosis", "tracking", "figures", "jobs", "comparison", "peaks", "report", "listing", "display", "help", "scaffold",
     "selftest", "doctor", "testing", "llm"},
    {"cli"},
]  # fmt: skip


def modules() -> list[Path]:
    return sorted(path for path in CORE.rglob("*.py") if "__pycache__" not in path.parts)


def imports_of(path: Path, top_level_only: bool = False) -> set[str]:
    """The modules that a file imports, absolute; those inside functions and TYPE_CHECKING only if asked for all."""
    found: set[str] = set()

    def walk(node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            if top_level_only and isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            if top_level_only and isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
                continue
            if isinstance(child, ast.Import):
                found.update(alias.name for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0, f"{path}: relative import"
                found.add(str(child.module))
            walk(child)

    walk(ast.parse(path.read_text(encoding="utf-8")))
    return found


def name_of(path: Path) -> str:
    return path.relative_to(CORE).as_posix()


@pytest.mark.parametrize("dependency", sorted(DOORS))
def test_a_dependency_comes_in_through_one_door(dependency):
    users = {name_of(p) for p in modules() if any(m.split(".")[0] == dependency for m in imports_of(p))}
    assert users <= DOORS[dependency]
    assert users, f"nobody uses {dependency} any more"


@pytest.mark.parametrize("dependency", sorted(ROOMS))
def test_a_dependency_stays_in_its_part_of_the_house(dependency):
    users = {name_of(p) for p in modules() if any(m.split(".")[0] == dependency for m in imports_of(p))}
    strangers = {user for user in users if not user.startswith(ROOMS[dependency])}
    assert strangers == set()


def layer_of(module: str) -> int | None:
    part = module.split(".")[1] if module.startswith("tilebench_core.") else None
    return next((number for number, layer in enumerate(LAYERS) if part in layer), None)


def test_every_module_has_its_layer():
    parts = {name_of(path).split("/")[0].removesuffix(".py") for path in modules()} - {"__init__"}
    assert parts == set().union(*LAYERS)


def test_a_module_imports_only_from_its_layer_and_below():
    wrong = []
    for path in modules():
        own = layer_of("tilebench_core." + name_of(path).removesuffix(".py").replace("/", "."))
        if own is None:
            continue
        for imported in imports_of(path, top_level_only=True):
            theirs = layer_of(imported)
            if theirs is not None and theirs > own:
                wrong.append(f"{name_of(path)} imports {imported}")
    assert wrong == []


def code_of(path: Path) -> str:
    """A file without its comments and docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documented = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and ast.get_docstring(
            node
        ):
            documented.add((node.body[0].lineno, node.body[0].col_offset))
        # a string that stands alone explains the name above it
        for field in getattr(node, "body", []) if isinstance(getattr(node, "body", None), list) else []:
            if (
                isinstance(field, ast.Expr)
                and isinstance(field.value, ast.Constant)
                and isinstance(field.value.value, str)
            ):
                documented.add((field.lineno, field.col_offset))
    kept = []
    with path.open("rb") as lines:
        for token in tokenize.tokenize(lines.readline):
            if token.type != tokenize.COMMENT and token.start not in documented:
                kept.append(token.string)
    return " ".join(kept)


# Words that are no knowledge about a DSL, each with its reason.
ALLOWED = {
    "pytorch/compiled.py": {"triton"},  # the version of the compiler that PyTorch's own Inductor depends on
    "cli.py": {"triton"},  # an example in the help
}


def test_nothing_in_the_core_names_a_dsl():
    named = {}
    for path in modules():
        words = {found.group().lower() for found in DSLS.finditer(code_of(path))} - ALLOWED.get(name_of(path), set())
        if words:
            named[name_of(path)] = words
    assert named == {}


def test_nothing_in_the_core_imports_a_dsl():
    for path in modules():
        for module in imports_of(path):
            assert module.split(".")[0] not in {"triton", "tilelang", "tvm"}, (path, module)
            assert not module.startswith("cuda.tile"), path


def loaded_after(code: str) -> set[str]:
    script = f"import sys, json\n{code}\nprint(json.dumps(sorted({{name.split('.')[0] for name in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_importing_the_core_loads_nothing_heavy():
    assert loaded_after("import tilebench_core") & HEAVY == set()


@pytest.mark.parametrize(
    "arguments", [["list"], ["list", "--json"], ["--help"], ["run", "--help"], ["doctor", "--device", "cpu"]]
)
def test_commands_that_only_look_load_nothing_heavy(arguments):
    code = f"from tilebench_core.cli import main\nassert main({arguments}) in (0, 1)"
    assert loaded_after(code) & (HEAVY - {"cuda"}) == set()


def test_importing_a_backend_loads_no_dsl():
    code = "from tilebench_core.registry import installed\nassert installed().backends"
    assert loaded_after(code) & (HEAVY - {"cuda"}) == set()


def test_files_are_small_enough_to_hold_in_mind():
    long = {name_of(path): count for path in modules() if (count := len(path.read_text().splitlines())) > 320}
    assert long == {}


def test_a_broad_except_has_its_reason_beside_it():
    bare = []
    for path in modules():
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if re.search(r"except (Base)?Exception\b|except:", line) and "#" not in line and "raise" not in line:
                following = path.read_text(encoding="utf-8").splitlines()[number : number + 8]
                if not any("raise" in after for after in following):
                    bare.append(f"{name_of(path)}:{number}: {line.strip()}")
    assert bare == []
