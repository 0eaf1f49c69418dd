"""The source of an app that was written in a notebook, in a script, or in a module.

Gateways and executors import source. So what is sent is not the object but the statements that made it: the one that
binds the app, those that bind the names in it, and so on: imports, classes, functions and assignments at the top level
of cells or of the file, as they stood when they ran last. No object is pickled, and nothing else of a notebook is
sent: not what loops, `with` blocks and magics did, nor what was changed later (`paths.append(…)`).

The source is loaded and compared with the app before it is sent, so that what is not taken along is noticed here.
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
from cornserve.client.errors import TargetError
from cornserve.task.unit import unit_tasks

CELLS = "In"
"""Where IPython keeps the text of every cell that has run."""

_BINDING = ast.Import | ast.ImportFrom | ast.ClassDef | ast.FunctionDef | ast.Assign | ast.AnnAssign


class CaptureError(TargetError):
    """An app's source is not to be had from where it was defined."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"{reason}. Deploy a file, or the source as a string, instead")


@dataclass(frozen=True, slots=True)
class Statement:
    """At the top level of a cell or file."""

    place: tuple[int, int, int]
    """Text, line and column."""
    code: str
    node: ast.stmt

    @property
    def binds(self) -> set[str]:
        symbols = symtable(self.code, "<statement>", "exec").get_symbols()
        return {it.get_name() for it in symbols if it.is_assigned() or it.is_imported()}

    @property
    def needs(self) -> set[str]:
        return set(_globals(symtable(self.code, "<statement>", "exec")))


def source_of(app: App) -> str:
    """Raises `CaptureError`."""
    for namespace in _namespaces(app):
        name = next((name for name, value in namespace.items() if value is app and name.isidentifier()), None)
        # `_` and `_7` are IPython's own names for what a cell has shown.
        if name is not None and not name.startswith("_"):
            source = _slice(name, namespace)
            _check(source, app)
            return source
    raise CaptureError(f"the app {app.name!r} is not the value of a variable of the notebook or module: `app = App(…)`")


def _namespaces(app: App) -> Iterator[Mapping[str, Any]]:
    for module in dict.fromkeys(("__main__", *(type(path).__module__ for path in app.paths))):
        if module in sys.modules:
            yield vars(sys.modules[module])


def _slice(name: str, namespace: Mapping[str, Any]) -> str:
    """The statements without which the name would not be what it is, in their order."""
    statements = [it for number, text in enumerate(_texts(namespace)) for it in _statements(number, text)]
    bound = {name: it for it in statements for name in it.binds}  # the last one counts
    chosen = {it.place: it for it in statements if _is_future(it.node)}
    wanted, looked_at = [name], {name}
    while wanted:
        statement = bound.get(name := wanted.pop())
        if statement is None:
            if name in namespace and not hasattr(builtins, name):
                raise CaptureError(
                    f"no import, class, function or assignment at the top level binds {name!r}, which the app uses"
                )
            continue
        chosen[statement.place] = statement
        wanted += statement.needs - looked_at
        looked_at |= statement.needs
    return "\n\n".join(chosen[place].code for place in sorted(chosen)) + "\n"


def _texts(namespace: Mapping[str, Any]) -> list[str]:
    if isinstance(cells := namespace.get(CELLS), list):
        return cells
    if (file := namespace.get("__file__")) is None:
        raise CaptureError("Python keeps no text of what is typed into this shell")
    try:
        return [Path(file).read_text()]
    except (OSError, UnicodeDecodeError) as error:
        raise CaptureError(f"cannot read {file}: {error}") from error


def _statements(number: int, text: str) -> Iterator[Statement]:
    with suppress(SyntaxError):  # a cell that never ran
        for node in ast.parse(text).body:
            if isinstance(node, _BINDING):
                yield Statement((number, node.lineno, node.col_offset), _code(text, node), node)


def _code(text: str, node: ast.stmt) -> str:
    decorators = [it.lineno for it in getattr(node, "decorator_list", [])]
    above = text.splitlines()[min(decorators, default=node.lineno) - 1 : node.lineno - 1]
    return "\n".join([*above, ast.get_source_segment(text, node) or ""])


def _globals(table: SymbolTable) -> Iterator[str]:
    """The names that are looked up at the top level."""
    for symbol in table.get_symbols():
        if symbol.is_referenced() and (table.get_type() == "module" or symbol.is_global()):
            yield symbol.get_name()
    for inner in table.get_children():
        yield from _globals(inner)


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _check(source: str, app: App) -> None:
    """That the source gives this app, and no other."""
    module = f"cornserve_captured_{uuid.uuid4().hex}"
    try:
        loaded = load_app_source(source, module)
    except SourceError as error:
        raise CaptureError(f"the source of the app {app.name!r} does not stand alone: {error}") from error
    unload_app(module)
    if _facts(loaded) != _facts(app):
        raise CaptureError(
            f"the app {app.name!r} is not what its source says: something was changed after it was defined, or a "
            "cell was edited and has not run again"
        )


def _facts(app: App) -> Any:
    paths = [(path.name, path.model_dump(), [unit.key for unit in unit_tasks(path)]) for path in app.paths]
    return app.name, paths, app.shares, app.max_invocations
