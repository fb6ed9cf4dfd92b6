"""Checks of what a candidate keeps between calls: compiled code may be kept, nothing that comes from tensors may."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tilebench_core.llm.compliance import Finding, Rules, Verdict
from tilebench_core.llm.compliance_names import Module, Scope, own_nodes

__all__ = ["state_findings"]

_CACHES = {"functools.lru_cache", "functools.cache", "functools.cached_property"}
_ADDERS = {"append", "add", "update", "setdefault", "insert", "extend", "__setitem__", "appendleft"}


def state_findings(tree: ast.Module, module: Module, rules: Rules) -> Iterator[Finding]:
    """Yield the findings about state that outlives a call."""
    shared = _module_level_names(tree)
    for scope in module.scopes:
        if isinstance(scope.node, ast.Module):
            continue
        yield from _cached_function(scope, module)
        yield from _defaults(scope)
        declared = {name for node in own_nodes(scope, module) if isinstance(node, ast.Global) for name in node.names}
        local = _local_names(scope, module) - declared
        for node in own_nodes(scope, module):
            yield from _writes(node, scope, module, (shared - local) | declared, declared)


def _module_level_names(tree: ast.Module) -> set[str]:
    names = set()
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        names |= {inner.id for target in targets for inner in ast.walk(target) if isinstance(inner, ast.Name)}
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
    return names


def _local_names(scope: Scope, module: Module) -> set[str]:
    bound = {n.id for n in own_nodes(scope, module) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return bound | set(scope.parameters)


def _cached_function(scope: Scope, module: Module) -> Iterator[Finding]:
    for item in getattr(scope.node, "decorator_list", []):
        path = module.path(item.func if isinstance(item, ast.Call) else item)
        if path in _CACHES:
            if scope.tensors & set(scope.parameters):
                names = ", ".join(sorted(scope.tensors & set(scope.parameters)))
                yield Finding(item.lineno, "state", Verdict.VIOLATION, f"{scope.name} is cached by the tensor {names}")
            elif scope.returns_tensor:
                yield Finding(item.lineno, "state", Verdict.VIOLATION, f"{scope.name} keeps a tensor between calls")
            else:
                yield Finding(item.lineno, "state", Verdict.NOTED, f"{scope.name} is cached; compiled code may be")


def _defaults(scope: Scope) -> Iterator[Finding]:
    arguments = getattr(scope.node, "args", None)
    for default in [*getattr(arguments, "defaults", []), *getattr(arguments, "kw_defaults", [])]:
        if isinstance(default, (ast.Dict, ast.List, ast.Set, ast.ListComp, ast.DictComp)) or (
            isinstance(default, ast.Call)
            and isinstance(default.func, ast.Name)
            and default.func.id in ("dict", "list", "set")
        ):
            yield Finding(default.lineno, "state", Verdict.NEEDS_REVIEW, "a mutable default argument outlives the call")


def _writes(node: ast.AST, scope: Scope, module: Module, shared: set[str], declared: set[str]) -> Iterator[Finding]:
    if isinstance(node, ast.AugAssign):
        root = _root(node.target)
        if root in (shared if not isinstance(node.target, ast.Name) else declared):
            yield Finding(node.lineno, "state", Verdict.VIOLATION, f"counts or accumulates in {root} between calls")
    elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            root = _root(target)
            if root in ("self", "cls") and not isinstance(target, ast.Name):
                found = _kept(node.lineno, str(root), [node.value], scope, module)
                if found.verdict is Verdict.VIOLATION:
                    yield found
                continue
            kept = root in (declared if isinstance(target, ast.Name) else shared)
            if kept and root not in scope.tensors and not _is_launch_grid(target):
                keys = [target.slice] if isinstance(target, ast.Subscript) else []
                yield _kept(node.lineno, str(root), [node.value, *keys], scope, module)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _ADDERS:
        root = _root(node.func.value)
        if root in shared:
            yield _kept(node.lineno, str(root), [*node.args, *(k.value for k in node.keywords)], scope, module)
    elif isinstance(node, ast.Nonlocal):
        yield Finding(
            node.lineno, "state", Verdict.NEEDS_REVIEW, f"nonlocal {', '.join(node.names)} may outlive the call"
        )


def _is_launch_grid(target: ast.AST) -> bool:
    return isinstance(target, (ast.Tuple, ast.List))


def _root(node: ast.AST) -> str | None:
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def _kept(line: int, name: str, values: list[ast.expr], scope: Scope, module: Module) -> Finding:
    """What it means that `values` are stored under the module-level `name`."""
    if any(_from_tensor(value, scope, module) for value in values):
        return Finding(line, "state", Verdict.VIOLATION, f"keeps in {name} what comes from a tensor")
    if any(_is_compiled(value, module) for value in values):
        return Finding(line, "state", Verdict.NOTED, f"keeps compiled code in {name}")
    return Finding(line, "state", Verdict.NEEDS_REVIEW, f"keeps {ast.unparse(values[0])[:50]} in {name} between calls")


def _from_tensor(node: ast.AST, scope: Scope, module: Module) -> bool:
    """True if an expression holds a tensor, its address or its identity, rather than its shape, type or device."""
    metadata = set(module.rules.common["methods"]["metadata"]) - {"untyped_storage"}
    if isinstance(node, ast.Attribute) and node.attr in metadata:
        return False
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in metadata:
            return any(_from_tensor(argument, scope, module) for argument in node.args)
        if isinstance(node.func, ast.Name) and node.func.id in ("len", "type"):
            return False
    if isinstance(node, ast.Name):
        return node.id in scope.tensors
    if isinstance(node, ast.Call) and module.is_tensor(node, scope):
        return True
    return any(_from_tensor(child, scope, module) for child in ast.iter_child_nodes(node))


def _is_compiled(node: ast.AST, module: Module) -> bool:
    """True if an expression calls or names a kernel, a decorator that makes one, or a function that returns one."""
    makers = [*module.rules.dsl["kernel_decorators"], *module.rules.dsl["factory_decorators"]]
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and inner.id in module.kernels | _factories(module):
            return True
        if module.path(inner) in makers:
            return True
    return False


def _factories(module: Module) -> set[str]:
    """Functions whose body defines a kernel, and which therefore return compiled code."""
    return {
        scope.name
        for scope in module.scopes
        if not isinstance(scope.node, (ast.Module, ast.Lambda))
        and any(
            isinstance(n, ast.FunctionDef) and (n in module.device or n.name in module.kernels)
            for n in ast.walk(scope.node)
        )
    }
