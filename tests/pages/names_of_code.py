"""A check of code that cannot run here: that the names it imports, reads and passes exist.

It knows what the code imports, follows attributes of modules and classes, and compares the
arguments of calls with signatures. What it does not know (results of calls, packages that are not
installed) it takes as it is. Names of `ingot.ray`, which cannot be imported without Ray, are read
from the source.
"""

import ast
import builtins
import inspect
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args, get_type_hints

import ingot

UNKNOWN = object()
_SOURCE = Path(ingot.__file__).parent


class Described:
    """A class or function whose module cannot be imported: its parameters, from the source."""

    def __init__(self, node: ast.ClassDef | ast.FunctionDef) -> None:
        if isinstance(node, ast.ClassDef):
            fields = (field.target for field in node.body if isinstance(field, ast.AnnAssign))
            self.parameters = {field.id for field in fields if isinstance(field, ast.Name)}
        else:
            self.parameters = {each.arg for each in (*node.args.args, *node.args.kwonlyargs)}


def faults(code: str) -> list[str]:
    """What is wrong with a piece of code, a line each."""
    tree = ast.parse(code)
    return list(_Check(tree).faults())


class _Check:
    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree
        self._names: dict[str, Any] = dict(vars(builtins))

    def faults(self) -> Iterator[str]:
        """All of them, in the order of the code."""
        for statement in self._tree.body:
            if isinstance(statement, ast.Import | ast.ImportFrom):
                yield from self._import(statement)
                continue
            for node in ast.walk(statement):  # names first: a loop may use what it assigns
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    self._names[node.id] = UNKNOWN
            for node in ast.walk(statement):
                yield from self._node(node)

    def _import(self, node: ast.Import | ast.ImportFrom) -> Iterator[str]:
        for alias in node.names:
            module = node.module if isinstance(node, ast.ImportFrom) else None
            name = alias.asname or alias.name.partition(".")[0]
            if module is None:
                self._names[name] = _module(alias.name.partition(".")[0])
                continue
            found = self._names[name] = _member(module, alias.name)
            if found is None:
                yield f"{module} has no {alias.name}"

    def _node(self, node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.Name) and node.id not in self._names:
            yield f"{node.id} is not defined"
        elif isinstance(node, ast.Attribute):
            owner = self._value(node.value)
            if _is_known(owner) and not hasattr(owner, node.attr):
                yield f"{ast.unparse(node.value)} has no {node.attr}"
        elif isinstance(node, ast.Call):
            called = self._value(node.func)
            if isinstance(called, Described) or (_is_known(called) and callable(called)):
                yield from _call_faults(called, node)

    def _value(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Name):
            return self._names.get(node.id, UNKNOWN)
        if isinstance(node, ast.Attribute):
            owner = self._value(node.value)
            return getattr(owner, node.attr, UNKNOWN) if _is_known(owner) else UNKNOWN
        return UNKNOWN


def _is_known(value: Any) -> bool:
    return value is not UNKNOWN and not isinstance(value, Described)


def _module(name: str) -> Any:
    return import_module(name) if find_spec(name.partition(".")[0]) else UNKNOWN


def _member(module: str, name: str) -> Any:
    """None if there is none."""
    if module == "ingot.ray" and not find_spec("ray"):
        return _described(name)
    try:
        home = _module(module)
    except ModuleNotFoundError:
        return None
    if home is UNKNOWN or hasattr(home, name):
        return home if home is UNKNOWN else getattr(home, name)
    return import_module(f"{module}.{name}") if find_spec(f"{module}.{name}") else None


def _described(name: str) -> Described | None:
    """What the package `ingot.ray` exports, from the file that defines it."""
    exported = import_module("ingot.ray")._HOMES
    if name not in exported:
        return None
    tree = ast.parse((_SOURCE / "ray" / f"{exported[name]}.py").read_text())
    return next(
        Described(node)
        for node in tree.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name
    )


def _call_faults(called: Any, node: ast.Call) -> Iterator[str]:
    keywords = [keyword.arg for keyword in node.keywords if keyword.arg]
    if isinstance(called, Described):
        allowed: set[str] | None = called.parameters
    else:
        try:
            signature = inspect.signature(called)
        except (TypeError, ValueError):  # a builtin that tells none
            return
        allowed = _keywords(called, signature)
        try:
            signature.bind_partial(*node.args, **dict.fromkeys(set(keywords) & (allowed or set())))
        except TypeError as error:
            yield f"{ast.unparse(node.func)}: {error}"
    if allowed is not None:
        for name in keywords:
            if name not in allowed:
                yield f"{ast.unparse(node.func)} has no parameter {name}"


def _keywords(called: Any, signature: inspect.Signature) -> set[str] | None:
    """The names that a call may pass; None: any."""
    found = set()
    for name, parameter in signature.parameters.items():
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD:
            found.add(name)
            continue
        function = called.__init__ if inspect.isclass(called) else called
        try:
            hints = get_type_hints(function, include_extras=True)
        except NameError:  # of a package that imports what it names for type checkers alone
            return None
        unpacked = get_args(hints.get(name))
        if not unpacked:
            return None
        found |= unpacked[0].__annotations__.keys()
    return found
