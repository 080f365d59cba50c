"""Small faults in Python code: each mutant differs from a module in one place.

A source comes in; mutants go out, in the order of the source. Left alone is what cannot change a
result that a test should see: annotations, docstrings, error messages, log lines. So is the body of
a class outside its methods.
"""

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}


@dataclass(frozen=True)
class Mutant:
    """A module with one fault."""

    path: str
    line: int
    fault: str  # the code before and after
    tree: ast.Module

    @property
    def module(self) -> str:
        """The name by which the module is imported."""
        return self.path.removeprefix("src/").removesuffix(".py").replace("/", ".")


def mutants(path: str, source: str) -> Iterator[Mutant]:
    """All mutants of a source."""
    tree = ast.parse(source)
    places = list(_places(tree))  # of which there are the same in every copy
    for index, (node, change) in enumerate(places):
        mutated = copy.deepcopy(tree)
        twin, _ = list(_places(mutated))[index]
        statement = _statement_of(mutated, twin)
        before = ast.unparse(statement).splitlines()
        change(twin)
        ast.fix_missing_locations(mutated)
        after = ast.unparse(statement).splitlines()
        shown = [(a, b) for a, b in zip(before, after, strict=False) if a != b] or [("", "")]
        fault = f"{shown[0][0].strip()}  ->  {shown[0][1].strip()}"
        yield Mutant(path, node.lineno, fault, mutated)


_Place = tuple[ast.expr | ast.stmt, Callable[..., None]]


def _places(node: ast.AST) -> Iterator[_Place]:
    """Where a fault can be put, and what puts it there."""
    for child in _visited(node):
        yield from _faults(child)
        yield from _places(child)


def _visited(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.ClassDef):  # fields and their defaults are not run again
        yield from (part for part in node.body if isinstance(part, ast.FunctionDef))
        return
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _is_beside_the_point(child):
                yield child


def _is_beside_the_point(node: ast.AST) -> bool:
    if isinstance(node, (ast.Raise, ast.Assert, ast.JoinedStr, ast.Import, ast.ImportFrom)):
        return True
    if isinstance(node, ast.keyword) and node.arg == "strict":  # of zip: it only finds faults
        return True
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return True
    if isinstance(node, ast.Expr):
        text = ast.unparse(node)
        return isinstance(node.value, ast.Constant) or text.startswith(("_log.", "warnings."))
    return False


def _faults(node: ast.AST) -> Iterator[_Place]:
    match node:
        case ast.Compare(ops=[op]) if type(op) in _COMPARED:
            yield node, _compare
        case ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in _COMPUTED:
            yield node, _compute
        case ast.BoolOp():
            yield node, _join
        case ast.UnaryOp(op=ast.Not()):
            yield node, _affirm
        case ast.Constant(value=bool()):
            yield node, _flip
        case ast.Constant(value=int()):
            yield node, _increase
        case ast.If(test=ast.Name() | ast.Attribute() | ast.Call()):
            yield node, _negate
        case ast.IfExp(test=ast.Name() | ast.Attribute() | ast.Call()):
            yield node, _negate
        case ast.Expr(value=ast.Call()):
            yield node, _leave_out
        case ast.Continue() | ast.Break():
            yield node, _leave_out


def _compare(node: ast.Compare) -> None:
    node.ops = [_COMPARED[type(node.ops[0])]()]


def _compute(node: ast.BinOp | ast.AugAssign) -> None:
    node.op = _COMPUTED[type(node.op)]()


def _join(node: ast.BoolOp) -> None:
    node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()


def _affirm(node: ast.UnaryOp) -> None:
    node.op = ast.UAdd()
    node.operand = ast.Call(ast.Name("bool", ast.Load()), [node.operand], [])


def _flip(node: ast.Constant) -> None:
    node.value = not node.value


def _increase(node: ast.Constant) -> None:
    assert isinstance(node.value, int)
    node.value = node.value + 1


def _negate(node: ast.If | ast.IfExp) -> None:
    node.test = ast.UnaryOp(ast.Not(), node.test)


def _leave_out(node: ast.stmt) -> None:
    kept = {name: getattr(node, name) for name in ("lineno", "col_offset")}
    node.__class__ = ast.Pass
    node.__dict__ = kept


def _statement_of(tree: ast.AST, node: ast.AST) -> ast.AST:
    """The smallest statement around a node."""
    found: ast.AST = tree
    for statement in ast.walk(tree):
        if isinstance(statement, ast.stmt) and any(inner is node for inner in ast.walk(statement)):
            found = statement
    return found
