"""Captures the source of an app that is defined in a notebook, a script or a module.

Gateways and executors import source code. The client therefore sends the statements that create the app and not the
object: the statement that binds the app, those that bind the names in it, and so on. Statements are imports, classes,
functions and assignments at the top level of cells or of the file, in the version that ran last. No object is pickled.
Effects of loops, `with` blocks, magics and later changes (`paths.append(…)`) are not captured.

Before it is sent, the source is loaded and compared with the app, in order to detect missing effects.
"""

from __future__ import annotations

import ast
import builtins
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from symtable import SymbolTable, symtable
from typing import Any

from cornserve.app.app import App
from cornserve.app.source import SourceError, load_app_source, unload_app
from cornserve.client.errors import DeployTargetError
from cornserve.task.unit import unit_tasks

CELLS = "In"
"""The variable in which IPython stores the text of each cell that has run."""

_BINDING = ast.Import | ast.ImportFrom | ast.ClassDef | ast.FunctionDef | ast.Assign | ast.AnnAssign


class SourceCaptureError(DeployTargetError):
    """The source of an app cannot be captured."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"{reason}: deploy a file, or the source as a string, instead")


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement at the top level of a cell or file that binds names."""

    position: tuple[int, int, int]
    """Index of the cell, line and column."""
    code: str
    node: ast.stmt

    @property
    def binds(self) -> set[str]:
        symbols = symtable(self.code, "<statement>", "exec").get_symbols()
        return {symbol.get_name() for symbol in symbols if symbol.is_assigned() or symbol.is_imported()}

    @property
    def needs(self) -> set[str]:
        return set(_globals(symtable(self.code, "<statement>", "exec")))


def capture_source(app: App) -> str:
    """Returns the source of the app. Raises `SourceCaptureError`."""
    for namespace in _namespaces(app):
        name = next((name for name, value in namespace.items() if value is app and name.isidentifier()), None)
        # IPython binds `_` and `_7` to the output of cells.
        if name is not None and not name.startswith("_"):
            source = _slice(name, namespace)
            _check(source, app)
            return source
    raise SourceCaptureError(
        f"the app {app.name!r} is not assigned to a variable of the notebook or module (`app = App(…)`)"
    )


def _namespaces(app: App) -> Iterator[Mapping[str, Any]]:
    for module in dict.fromkeys(("__main__", *(type(path).__module__ for path in app.paths))):
        if module in sys.modules:
            yield vars(sys.modules[module])


def _slice(name: str, namespace: Mapping[str, Any]) -> str:
    """Returns the statements on which the value of `name` depends, in their order."""
    statements = [statement for index, text in enumerate(_texts(namespace)) for statement in _statements(index, text)]
    bindings = {name: statement for statement in statements for name in statement.binds}  # The last binding wins.
    selected = {statement.position: statement for statement in statements if _is_future_import(statement.node)}
    pending, visited = [name], {name}
    while pending:
        statement = bindings.get(name := pending.pop())
        if statement is None:
            if name in namespace and not hasattr(builtins, name):
                raise SourceCaptureError(
                    f"no import, class, function or assignment at the top level binds {name!r}, which the app uses"
                )
            continue
        selected[statement.position] = statement
        pending += statement.needs - visited
        visited |= statement.needs
    return "\n\n".join(selected[position].code for position in sorted(selected)) + "\n"


def _texts(namespace: Mapping[str, Any]) -> list[str]:
    if isinstance(cells := namespace.get(CELLS), list):
        return cells
    if (file := namespace.get("__file__")) is None:
        raise SourceCaptureError("Python does not store the text that is typed into this shell")
    try:
        return [Path(file).read_text()]
    except (OSError, UnicodeDecodeError) as error:
        raise SourceCaptureError(f"cannot read {file}: {error}") from error


def _statements(index: int, text: str) -> Iterator[Statement]:
    with suppress(SyntaxError):  # The cell did not run.
        for node in ast.parse(text).body:
            if isinstance(node, _BINDING):
                yield Statement((index, node.lineno, node.col_offset), _code(text, node), node)


def _code(text: str, node: ast.stmt) -> str:
    decorators = [decorator.lineno for decorator in getattr(node, "decorator_list", [])]
    above = text.splitlines()[min(decorators, default=node.lineno) - 1 : node.lineno - 1]
    return "\n".join([*above, ast.get_source_segment(text, node) or ""])


def _globals(table: SymbolTable) -> Iterator[str]:
    """Yields the names that the code looks up at the top level."""
    for symbol in table.get_symbols():
        if symbol.is_referenced() and (table.get_type() == "module" or symbol.is_global()):
            yield symbol.get_name()
    for inner in table.get_children():
        yield from _globals(inner)


def _is_future_import(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _check(source: str, app: App) -> None:
    """Raises `SourceCaptureError` unless the source defines an equal app."""
    module = f"cornserve_captured_{uuid.uuid4().hex}"
    try:
        loaded = load_app_source(source, module)
    except SourceError as error:
        raise SourceCaptureError(f"the captured source of the app {app.name!r} cannot be loaded ({error})") from error
    unload_app(module)
    if _description(loaded) != _description(app):
        raise SourceCaptureError(
            f"the app {app.name!r} differs from its source, because an object was changed after its definition or a "
            "cell was edited and not run again"
        )


def _description(app: App) -> Any:
    paths = [(path.name, path.model_dump(), [unit.key for unit in unit_tasks(path)]) for path in app.paths]
    return app.name, paths, app.shares, app.max_invocations
