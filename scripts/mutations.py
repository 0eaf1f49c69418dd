"""Small faults in Python code: each changes one expression or one statement."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

_OTHER_OPERATORS: Final[dict[type[ast.AST], Any]] = {
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
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
}
_LOGGING: Final = ("debug", "info", "warning", "error", "exception")


@dataclass(frozen=True)
class Mutation:
    line: int
    before: str
    after: str
    source: str
    """The mutated source of the module."""


def mutations(source: str) -> list[Mutation]:
    """Returns all mutations of the functions in a module, in the order of their lines.

    Leaves out annotations, f-strings, and calls that write to a log.
    """
    functions = [
        node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    found = [
        _mutation(source, replaced, mutant)
        for function in functions
        for statement in function.body
        for node in _nodes(statement)
        for replaced, mutant in _mutants(node)
    ]
    return sorted(found, key=lambda mutation: (mutation.line, mutation.before, mutation.after))


def _nodes(node: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """Yields the statements and expressions of a node, without those of nested functions and classes."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.JoinedStr) or _writes_log(node):
        return
    if isinstance(node, ast.expr | ast.stmt):
        yield node
    annotation = node.annotation if isinstance(node, ast.AnnAssign) else None
    for child in ast.iter_child_nodes(node):
        if child is not annotation:
            yield from _nodes(child)


def _writes_log(node: ast.AST) -> bool:
    match node:
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr=name))):
            return name in _LOGGING
        case _:
            return False


def _mutants(node: ast.expr | ast.stmt) -> Iterator[tuple[ast.expr | ast.stmt, ast.AST]]:
    """Yields a node to replace, which is the given one or its condition, and the replacement."""
    changed = copy.deepcopy(node)
    match changed:
        case ast.If() | ast.While() | ast.IfExp():
            assert isinstance(node, ast.If | ast.While | ast.IfExp)
            yield node.test, ast.UnaryOp(ast.Not(), node.test)
        case ast.Constant(value=bool(value)):
            yield node, ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield node, ast.Constant(value + 1)
        case ast.Compare(ops=[operator, *rest]) if type(operator) in _OTHER_OPERATORS:
            changed.ops = [_OTHER_OPERATORS[type(operator)](), *rest]
            yield node, changed
        case ast.BoolOp(op=operator) | ast.BinOp(op=operator) if type(operator) in _OTHER_OPERATORS:
            changed.op = _OTHER_OPERATORS[type(operator)]()
            yield node, changed
        case ast.Call(func=function, args=[first, second, *rest]) if _can_swap(function, first, second):
            changed.args = [second, first, *rest]
            yield node, changed
        case ast.Return(value=ast.expr()):
            yield node, ast.Return()
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.AugAssign() | ast.Raise() | ast.Break() | ast.Continue():
            yield node, ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield node, ast.Pass()


def _can_swap(function: ast.expr, first: ast.expr, second: ast.expr) -> bool:
    """Returns false if the swap would have no effect."""
    if isinstance(function, ast.Name) and function.id in ("max", "min"):
        return False
    starred = isinstance(first, ast.Starred) or isinstance(second, ast.Starred)
    return not starred and ast.dump(first) != ast.dump(second)


def _mutation(source: str, node: ast.expr | ast.stmt, replacement: ast.AST) -> Mutation:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    after = ast.unparse(replacement)
    if isinstance(node, ast.expr):
        after = f"({after})"
    lines = source.encode().splitlines(keepends=True)  # Columns count bytes.
    start = sum(map(len, lines[: node.lineno - 1])) + node.col_offset
    end = sum(map(len, lines[: node.end_lineno - 1])) + node.end_col_offset
    content = source.encode()
    mutated = content[:start] + after.encode() + content[end:]
    return Mutation(node.lineno, content[start:end].decode(), after, mutated.decode())
