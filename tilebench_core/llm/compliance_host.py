"""Checks of what a candidate names and calls: imports, delegation, tuning, precision, patching, and that it has a kernel."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator

from tilebench_core.llm.compliance import Finding, Rules, Verdict, matches
from tilebench_core.llm.compliance_names import Module, Scope, own_nodes

__all__ = ["host_findings"]


def host_findings(tree: ast.Module, module: Module, rules: Rules) -> Iterator[Finding]:
    """Yield the findings about names and calls."""
    yield from _imports(tree, rules)
    yield from _everywhere(tree, module, rules)
    for scope in module.scopes:
        for node in own_nodes(scope, module):
            yield from _in_host(node, scope, module, rules)
    yield from _kernel(tree, module, rules)


def _imports(tree: ast.Module, rules: Rules) -> Iterator[Finding]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            if node.level or any(alias.name == "*" for alias in node.names):
                yield Finding(node.lineno, "imports", Verdict.VIOLATION, "relative and star imports hide what is used")
                continue
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            yield from _import(name, node.lineno, rules)


def _import(name: str, line: int, rules: Rules) -> Iterator[Finding]:
    root = name.partition(".")[0]
    table = rules.common["modules"]
    if root == "tilebench_core":
        if (
            name != root
            and name not in rules.common["core_names"]
            and not any(known.startswith(f"{name}.") for known in rules.common["core_names"])
        ):
            yield Finding(line, "harness", Verdict.VIOLATION, f"{name} is no part of a kernel's contract")
        return
    if any(name == mine or name.startswith(f"{mine}.") or mine.startswith(f"{name}.") for mine in rules.dsl["modules"]):
        verdict, rule = rules.of_dsl(name)
        if verdict > Verdict.CLEAR:
            yield Finding(line, rule, verdict, f"imports {name}")
        return
    if root in table["clear"]:
        return  # what is taken from torch is judged where it is used
    for rule, modules in table["violation"].items():
        if root in modules:
            yield Finding(line, rule, Verdict.VIOLATION, f"imports {name}")
            return
    for rule, patterns in rules.dsl["violation"].items():
        if matches(name, patterns):
            yield Finding(line, rule, Verdict.VIOLATION, f"imports {name}")
            return
    if root in sys.stdlib_module_names:
        yield Finding(line, "imports", Verdict.NEEDS_REVIEW, f"imports {name}, which a kernel hardly needs")
    else:
        yield Finding(line, "delegation", Verdict.VIOLATION, f"imports {name}, a library of its own")


def _everywhere(tree: ast.Module, module: Module, rules: Rules) -> Iterator[Finding]:
    """What is forbidden in host and device code alike."""
    for node, local in _with_locals(tree, frozenset()):
        line = getattr(node, "lineno", 1)
        if isinstance(node, ast.Attribute):
            if node.attr in rules.common["attributes"]["violation"]:
                yield Finding(line, "patching", Verdict.VIOLATION, f"reaches for .{node.attr}")
            elif (
                node.attr.startswith("__") and node.attr.endswith("__") and node.attr not in ("__name__", "__version__")
            ):
                yield Finding(line, "dynamic", Verdict.VIOLATION, f"names the special method .{node.attr} itself")
            yield from _dsl_name(node, line, module, rules)
        elif isinstance(node, ast.Name):
            # A name that the candidate defines itself, as a function, parameter or local variable, is not Python's.
            own = node.id in module.own or node.id in local
            if node.id in rules.common["builtins"]["violation"] and not own:
                yield Finding(line, "dynamic", Verdict.VIOLATION, f"uses {node.id}")
            elif (
                node.id.startswith("__")
                and node.id.endswith("__")
                and node.id not in ("__all__", "__name__", "__doc__")
            ):
                yield Finding(line, "patching", Verdict.VIOLATION, f"uses {node.id}")
            yield from _dsl_name(node, line, module, rules)
        elif isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Delete)):
            targets = node.targets if isinstance(node, (ast.Assign, ast.Delete)) else [node.target]
            for target in targets:
                if isinstance(target, (ast.Attribute, ast.Subscript)):
                    path = module.path(target.value if isinstance(target, ast.Subscript) else target)
                    if path is not None:
                        rule = "precision" if path.startswith("torch.backends") else "patching"
                        yield Finding(line, rule, Verdict.VIOLATION, f"changes {path}")


def _with_locals(node: ast.AST, local: frozenset[str]) -> Iterator[tuple[ast.AST, frozenset[str]]]:
    """Every node, with the parameters and variables of the functions around it."""
    for child in ast.iter_child_nodes(node):
        inner = local
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            arguments = child.args
            every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
            stored = {n.id for n in ast.walk(child) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
            declared = {name for n in ast.walk(child) if isinstance(n, (ast.Global, ast.Nonlocal)) for name in n.names}
            inner = local | {argument.arg for argument in every if argument} | (stored - declared)
        yield child, inner
        yield from _with_locals(child, inner)


def _dsl_name(node: ast.AST, line: int, module: Module, rules: Rules) -> Iterator[Finding]:
    path = module.path(node)
    if path is None or path.startswith(("torch.", "tilebench_core")):
        return
    verdict, rule = rules.of_dsl(path)
    if verdict > Verdict.CLEAR:
        yield Finding(line, rule, verdict, f"uses {path}")


def _in_host(node: ast.AST, scope: Scope, module: Module, rules: Rules) -> Iterator[Finding]:
    line = getattr(node, "lineno", 1)
    if isinstance(node, ast.Call):
        yield from _call(node, line, scope, module, rules)
    elif (isinstance(node, ast.Attribute) and (module.path(node) or "").startswith("torch.")) or (
        isinstance(node, ast.Name)
        and isinstance(node.ctx, ast.Load)
        and (module.aliases.get(node.id) or "").startswith("torch.")
    ):
        yield from _torch_name(node, line, module, rules)
    elif isinstance(node, ast.BinOp):
        if isinstance(node.op, ast.MatMult):
            yield Finding(line, "delegation", Verdict.VIOLATION, "multiplies matrices with @ in host code")
        elif module.is_tensor(node.left, scope) or module.is_tensor(node.right, scope):
            yield Finding(
                line, "delegation", Verdict.VIOLATION, f"computes on tensors in host code: {ast.unparse(node)[:60]}"
            )
    elif isinstance(node, ast.UnaryOp) and not isinstance(node.op, ast.Not) and module.is_tensor(node.operand, scope):
        yield Finding(
            line, "delegation", Verdict.VIOLATION, f"computes on tensors in host code: {ast.unparse(node)[:60]}"
        )
    elif isinstance(node, ast.Compare) and not all(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops):
        if any(module.is_tensor(side, scope) for side in (node.left, *node.comparators)):
            yield Finding(line, "delegation", Verdict.VIOLATION, "compares tensors in host code")
    elif isinstance(node, ast.AugAssign) and module.is_tensor(node.target, scope):
        yield Finding(
            line, "delegation", Verdict.VIOLATION, f"computes on tensors in host code: {ast.unparse(node)[:60]}"
        )
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Subscript) and module.is_tensor(target.value, scope):
                verdict = Verdict.VIOLATION if module.is_tensor(node.value, scope) else Verdict.NEEDS_REVIEW
                yield Finding(line, "delegation", verdict, "writes into a tensor in host code")
    elif isinstance(node, (ast.Yield, ast.YieldFrom)):
        yield Finding(line, "state", Verdict.VIOLATION, "a generator keeps its variables between calls")
    elif isinstance(node, ast.MatchClass):
        yield Finding(line, "dynamic", Verdict.VIOLATION, "a class pattern reads attributes without naming their owner")
    elif isinstance(node, ast.Try):
        yield Finding(
            line, "fallback", Verdict.NOTED, "catches exceptions; a failure must not become another way to the result"
        )


def _torch_name(node: ast.AST, line: int, module: Module, rules: Rules) -> Iterator[Finding]:
    """A PyTorch name in host code, called or handed on. Namespaces on the way to a name are not judged themselves."""
    path = module.path(node) or ""
    verdict, rule = rules.torch(path)
    if rule == "delegation" and any(known.startswith(f"{path}.") for known in _known(rules)):
        return
    if verdict > Verdict.CLEAR:
        yield Finding(line, rule, verdict, f"uses {path} in host code")


def _known(rules: Rules) -> Iterator[str]:
    table = rules.common["torch"]
    for name in ("clear", "noted", "review"):
        yield from table[name]
    for patterns in table["violation"].values():
        yield from patterns


def _call(node: ast.Call, line: int, scope: Scope, module: Module, rules: Rules) -> Iterator[Finding]:
    function = node.func
    if isinstance(function, ast.Name) and function.id not in module.own:
        if function.id == "getattr":
            path = module.path(node)
            if path is None:
                rooted = bool(node.args) and module.path(node.args[0]) is not None
                verdict = Verdict.VIOLATION if rooted else Verdict.NEEDS_REVIEW
                yield Finding(line, "dynamic", verdict, f"looks up a name while it runs: {ast.unparse(node)[:60]}")
            elif path.startswith("torch."):
                yield from _torch_name(node, line, module, rules)
        elif function.id in rules.common["builtins"]["review"] and function.id not in module.aliases:
            yield Finding(line, "dynamic", Verdict.NEEDS_REVIEW, f"calls {function.id}()")
        elif function.id in (
            "sum",
            "max",
            "min",
            "abs",
            "round",
            "pow",
            "float",
            "int",
            "bool",
            "sorted",
            "list",
            "divmod",
        ) and any(_holds_tensor(argument, scope, module) for argument in node.args):
            yield Finding(line, "delegation", Verdict.VIOLATION, f"computes on a tensor in host code: {function.id}()")
    if module.path(function) == "functools.reduce" and any(_holds_tensor(a, scope, module) for a in node.args):
        yield Finding(line, "delegation", Verdict.VIOLATION, "reduces tensors in host code")
    if (
        isinstance(function, ast.Attribute)
        and module.path(function) is None
        and module.is_tensor(function.value, scope)
    ):
        verdict, rule = rules.method(function.attr)
        if verdict > Verdict.CLEAR:
            yield Finding(line, rule, verdict, f"calls .{function.attr}() of a tensor in host code")
    for keyword in node.keywords:
        if keyword.arg in ("space",) and (module.path(function) or "").endswith(".Kernel"):
            yield Finding(line, "tuning", Verdict.NOTED, "offers a search space; one fixed configuration is run")


def _holds_tensor(node: ast.AST, scope: Scope, module: Module) -> bool:
    """True for a tensor and for a list, tuple or generator that holds one."""
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return any(_holds_tensor(element, scope, module) for element in node.elts)
    if isinstance(node, (ast.GeneratorExp, ast.ListComp)):
        return _holds_tensor(node.elt, scope, module)
    return module.is_tensor(node, scope)


def _kernel(tree: ast.Module, module: Module, rules: Rules) -> Iterator[Finding]:
    """A candidate must have a kernel of its DSL, and host code that names it; and say when it asks for less precision."""
    if not module.kernels:
        yield Finding(1, "kernel", Verdict.VIOLATION, "holds no kernel of its DSL")
        return
    used = {
        node.id
        for scope in module.scopes
        for node in own_nodes(scope, module)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    if not used & (module.kernels | _bound_to_kernels(tree, module)):
        yield Finding(1, "kernel", Verdict.VIOLATION, "no host code uses the kernel")
    for node in ast.walk(tree):
        for keyword in node.keywords if isinstance(node, ast.Call) else ():
            if keyword.arg in rules.dsl["precision_keywords"]:
                chosen = f"chooses {keyword.arg}={ast.unparse(keyword.value)}"
                yield Finding(keyword.value.lineno, "precision", Verdict.NOTED, chosen)


def _bound_to_kernels(tree: ast.Module, module: Module) -> set[str]:
    """Names that were given to a kernel: `fast = triton.jit(slow)`."""
    return {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and any(isinstance(n, ast.Name) and n.id in module.kernels for n in ast.walk(node.value))
        for target in node.targets
        if isinstance(target, ast.Name)
    }
