"""What the names in a candidate mean: imports and aliases, which functions are kernels, which values are tensors."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from tilebench_core.llm.compliance import Rules, matches

__all__ = ["Module", "Scope", "own_nodes", "read_module"]

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_EVIDENCE = {
    "shape", "dtype", "device", "stride", "numel", "element_size", "data_ptr", "is_contiguous", "contiguous", "size", "ndim",
    "dim", "view", "reshape", "new_empty", "new_zeros", "untyped_storage", "_version",
}  # fmt: skip


@dataclass
class Scope:
    """One host function (or the module itself): its node, and the names in it that hold tensors."""

    node: ast.AST
    name: str
    parameters: list[str] = field(default_factory=list)
    tensors: set[str] = field(default_factory=set)
    returns_tensor: bool = False
    factory: bool = False


@dataclass
class Module:
    """A candidate as the checks see it."""

    aliases: dict[str, str]
    own: dict[str, ast.AST]
    kernels: set[str]
    device: set[ast.AST]
    scopes: list[Scope]
    rules: Rules

    def path(self, node: ast.AST) -> str | None:
        """The dotted name that an expression stands for once aliases are resolved, e.g. "torch.matmul"; else None."""
        if isinstance(node, ast.Name):
            return self.aliases.get(node.id)
        if isinstance(node, ast.Attribute):
            base = self.path(node.value)
            return f"{base}.{node.attr}" if base else None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr":
            return self._constant_getattr(node)
        return None

    def _constant_getattr(self, node: ast.Call) -> str | None:
        base = self.path(node.args[0]) if len(node.args) >= 2 else None
        name = node.args[1].value if base and isinstance(node.args[1], ast.Constant) else None
        return f"{base}.{name}" if isinstance(name, str) else None

    def is_tensor(self, node: ast.AST, scope: Scope) -> bool:
        """True if an expression in `scope` is, as far as the text tells, a tensor."""
        if isinstance(node, ast.Name):
            return node.id in scope.tensors
        if isinstance(node, (ast.Subscript, ast.Starred)):
            return self.is_tensor(node.value, scope)
        if isinstance(node, ast.Attribute):
            return node.attr in ("T", "mT", "H", "data", "grad", "real", "imag") and self.is_tensor(node.value, scope)
        if isinstance(node, ast.BinOp):
            return self.is_tensor(node.left, scope) or self.is_tensor(node.right, scope)
        if isinstance(node, (ast.UnaryOp, ast.NamedExpr)):
            return self.is_tensor(node.operand if isinstance(node, ast.UnaryOp) else node.value, scope)
        if isinstance(node, ast.IfExp):
            return self.is_tensor(node.body, scope) or self.is_tensor(node.orelse, scope)
        return isinstance(node, ast.Call) and self._call_gives_tensor(node, scope)

    def _call_gives_tensor(self, node: ast.Call, scope: Scope) -> bool:
        path = self.path(node.func)
        if path and path.startswith("torch."):
            last = path.rpartition(".")[2]
            verdict, _ = self.rules.torch(path)
            return last.startswith(("empty", "zeros", "full", "ones", "as_strided", "arange", "tensor")) or verdict > 0
        if isinstance(node.func, ast.Attribute) and self.is_tensor(node.func.value, scope):
            return node.func.attr not in self.rules.common["methods"]["metadata"] + ["item", "tolist", "data_ptr"]
        if isinstance(node.func, ast.Name):
            return any(other.returns_tensor for other in self.scopes if other.name == node.func.id)
        return False


def own_nodes(scope: Scope, module: Module) -> Iterator[ast.AST]:
    """Every node of a scope, without those of kernels and of functions that are scopes of their own."""
    inner = {other.node for other in module.scopes if other is not scope} | module.device
    pending: list[ast.AST] = list(ast.iter_child_nodes(scope.node))
    while pending:
        node = pending.pop()
        if node in inner:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                pending += [*node.decorator_list, *node.args.defaults, *[d for d in node.args.kw_defaults if d]]
            continue
        yield node
        pending += list(ast.iter_child_nodes(node))


def read_module(tree: ast.Module, rules: Rules) -> Module:
    """Collect aliases, kernels and scopes of a candidate, then spread what is known about tensors until nothing is new."""
    module = Module(_aliases(tree), {}, set(), set(), [], rules)
    module.own = {
        node.name: node
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
    }
    for name in module.own:
        module.aliases.pop(name, None)  # a name that the candidate defines itself is its own
    _assigned_aliases(tree, module)
    _find_kernels(tree, module)
    module.scopes.append(Scope(tree, "<module>"))
    for node in ast.walk(tree):
        if isinstance(node, Function) and node not in module.device:
            arguments = node.args
            every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
            scope = Scope(node, getattr(node, "name", "<lambda>"), [argument.arg for argument in every])
            scope.factory = any(
                matches(_decorator(module, item) or "", rules.dsl["factory_decorators"])
                for item in getattr(node, "decorator_list", [])
            )
            annotated = [a.arg for a in every if a.annotation is not None and "Tensor" in ast.unparse(a.annotation)]
            scope.tensors.update([] if scope.factory else annotated)
            if scope.name == "run":
                scope.tensors.update(scope.parameters[:1])  # the first input of every operator is a tensor
            module.scopes.append(scope)
    for _ in range(8):
        spread = [_spread(scope, module) for scope in module.scopes]  # all of them, each round
        if not any(spread):
            break
    return module


def _aliases(tree: ast.Module) -> dict[str, str]:
    aliases: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                aliases[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                aliases[alias.asname or alias.name] = f"{node.module}.{alias.name}" if node.module else alias.name
    return aliases


def _assigned_aliases(tree: ast.Module, module: Module) -> None:
    """`mm = torch.matmul` makes `mm` another name of it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            path = module.path(node.value)
            if path is not None:
                module.aliases[node.targets[0].id] = path


def _decorator(module: Module, node: ast.AST) -> str | None:
    return module.path(node.func if isinstance(node, ast.Call) else node)


def _find_kernels(tree: ast.Module, module: Module) -> None:
    """Functions under a kernel decorator, or handed to one, and everything nested in them, are device code."""
    decorators = module.rules.dsl["kernel_decorators"]
    roots: list[ast.AST] = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if any(matches(_decorator(module, item) or "", decorators) for item in node.decorator_list):
                roots.append(node)
                module.kernels.add(node.name)
            if any(
                matches(_decorator(module, item) or "", module.rules.dsl["factory_decorators"])
                for item in node.decorator_list
            ):
                module.kernels.add(node.name)
        elif isinstance(node, ast.Call) and matches(module.path(node.func) or "", decorators):
            for argument in node.args:
                if isinstance(argument, ast.Name) and argument.id in module.own:
                    roots.append(module.own[argument.id])
                    module.kernels.add(argument.id)
    for root in roots:
        module.device.update(inner for inner in ast.walk(root) if isinstance(inner, Function))
    while helpers := _helpers(tree, module):
        module.device.update(helpers)


def _helpers(tree: ast.Module, module: Module) -> set[ast.AST]:
    """Functions that kernels call and host code does not name: some DSLs inline them without a decorator."""
    by_kernels: set[str] = set()
    by_host: set[str] = set()

    def visit(node: ast.AST, device: bool) -> None:
        for child in ast.iter_child_nodes(node):
            inside = device or child in module.device
            if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Load):
                (by_kernels if inside else by_host).add(child.id)
            visit(child, inside)

    visit(tree, False)
    roots = [
        node for name, node in module.own.items()
        if name in by_kernels - by_host and isinstance(node, ast.FunctionDef) and node not in module.device
    ]  # fmt: skip
    found: set[ast.AST] = {inner for root in roots for inner in ast.walk(root) if isinstance(inner, Function)}
    return found - module.device


def _spread(scope: Scope, module: Module) -> bool:
    """One round of learning which names of a scope hold tensors; True if anything is new."""
    before = len(scope.tensors), scope.returns_tensor
    changed = False
    for node in own_nodes(scope, module):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            # A case has a dtype too; where a tensor is handed over under that name, `_pass_on` finds it.
            is_case = node.value.id == "case" and scope.name != "run"
            # Plain values that `run` gets are numbers, and nobody asks a number for an attribute.
            known = node.attr in _EVIDENCE or scope.name == "run"
            if known and node.value.id in scope.parameters and not (scope.factory or is_case):
                scope.tensors.add(node.value.id)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                _assign(target, node.value, scope, module)
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
            _assign(node.target, node.value, scope, module)
        elif isinstance(node, ast.Return) and node.value is not None:
            values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
            scope.returns_tensor |= any(module.is_tensor(value, scope) for value in values)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            changed |= _pass_on(node, node.func.id, scope, module)
    return changed or (len(scope.tensors), scope.returns_tensor) != before


def _assign(target: ast.AST, value: ast.AST, scope: Scope, module: Module) -> None:
    if isinstance(target, ast.Name) and module.is_tensor(value, scope):
        scope.tensors.add(target.id)
    elif isinstance(target, (ast.Tuple, ast.List)):
        if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts):
            for one, its in zip(target.elts, value.elts, strict=True):
                _assign(one, its, scope, module)
        elif module.is_tensor(value, scope):
            scope.tensors.update(item.id for item in target.elts if isinstance(item, ast.Name))


def _pass_on(node: ast.Call, name: str, scope: Scope, module: Module) -> bool:
    """Tensors that are handed to a function of the candidate are tensors in it."""
    changed = False
    for other in module.scopes:
        if other.name != name or other.factory:
            continue
        given = [*zip(other.parameters, node.args, strict=False), *((k.arg, k.value) for k in node.keywords if k.arg)]
        for parameter, argument in given:
            if parameter not in other.tensors and module.is_tensor(argument, scope):
                other.tensors.add(parameter)
                changed = True
    return changed
