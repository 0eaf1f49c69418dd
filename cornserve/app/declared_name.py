"""Reads the name of an app from its source without running the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import accumulate

from cornserve.app.app import check_name
from cornserve.task.errors import DefinitionError


def check_declared_name(name: str, source: str | None) -> None:
    """Checks the name under which an app is deployed before any of its code runs.

    Raises `DefinitionError` if the name is invalid, or if the source is known to define an app with another name.
    """
    check_name(name)
    declared = None if source is None else declared_name(source)
    if declared not in (None, name):
        raise DefinitionError(
            f"the source defines the app {declared!r}, but is deployed as {name!r}: change the name in the source, or "
            f"deploy it as {declared!r}"
        )


def declared_name(source: str) -> str | None:
    """Returns the name in the only statement `app = App(name="...", ...)` at the top level of the source.

    Returns None without such a statement, with several of them, or with a name that is computed. The name is then known
    after the source has run.
    """
    declared = _declaration(source)
    return None if declared is None else str(declared.value)


def renamed_source(source: str, name: str) -> str | None:
    """Returns the source with another name in the statement that `declared_name` reads, or None without it."""
    declared = _declaration(source)
    if declared is None or declared.end_lineno is None or declared.end_col_offset is None:
        return None
    encoded = source.encode()
    starts = [0, *accumulate(len(line) for line in encoded.splitlines(keepends=True))]
    start = starts[declared.lineno - 1] + declared.col_offset
    end = starts[declared.end_lineno - 1] + declared.end_col_offset
    return (encoded[:start] + repr(name).encode() + encoded[end:]).decode()


def _declaration(source: str) -> ast.Constant | None:
    """Returns the name in the only statement `app = App(name="...", ...)`."""
    try:
        statements = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None  # The import of the source reports the error.
    if not any(_imports_app(statement) for statement in statements):
        return None
    names = [_name_argument(call) for statement in statements for call in _app_calls(statement)]
    return names[0] if len(names) == 1 else None


def _imports_app(statement: ast.stmt) -> bool:
    """Returns whether `App` is Cornserve's: `from cornserve import App`."""
    return (
        isinstance(statement, ast.ImportFrom)
        and statement.module == "cornserve"
        and any(alias.name == "App" and alias.asname is None for alias in statement.names)
    )


def _app_calls(statement: ast.stmt) -> Iterator[ast.Call]:
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        match statement.value:
            case ast.Call(func=ast.Name(id="App")) as call:
                yield call


def _name_argument(call: ast.Call) -> ast.Constant | None:
    given = [keyword.value for keyword in call.keywords if keyword.arg == "name"] or call.args[:1]
    match given:
        case [ast.Constant(value=str()) as name]:
            return name
    return None
