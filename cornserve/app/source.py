"""Imports the source of an app.

Each version is imported as a module with its own name. Versions of one app can therefore run at the same time, and
different apps may define classes with the same name. App code is trusted [C §5.2] and may be slow to import: call these
functions from a thread, not from an event loop.
"""

from __future__ import annotations

import linecache
import sys
from types import ModuleType

from pydantic import ValidationError

from cornserve.app.app import App
from cornserve.app.settings import DEFAULT_FILENAME
from cornserve.exception_text import exception_message, exception_text
from cornserve.task.errors import DefinitionError


class SourceError(DefinitionError):
    """The source does not define an app. The message contains the line and the reason."""


def source_path(module: str, filename: str) -> str:
    """Returns the file name that stack traces show for code of the module."""
    return f"<{module}>/{filename}"


def load_app_source(source: str, module: str, *, filename: str = DEFAULT_FILENAME) -> App:
    """Imports the source and returns the `App` that it defines at its top level.

    Args:
        module: the module name for the import, unique to this version of the app.
        filename: the name of the source in error messages.
    Raises:
        SourceError: the source cannot be imported, or defines no app or several.
    """
    loaded = ModuleType(module)
    loaded.__file__ = source_path(module, filename)
    # Tracebacks quote the source from linecache, and pydantic resolves annotations through sys.modules.
    linecache.cache[loaded.__file__] = (len(source), None, source.splitlines(keepends=True), loaded.__file__)
    sys.modules[module] = loaded
    try:
        exec(compile(source, loaded.__file__, "exec", dont_inherit=True), loaded.__dict__)
        return _find_app(loaded, filename)
    except SourceError:
        unload_app(module)
        raise
    except BaseException as error:
        unload_app(module)
        raise SourceError(f"{filename}{_line_of(error, loaded.__file__)}: {_reason(error, loaded.__file__)}") from error


def unload_app(module: str) -> None:
    """Removes the module of a version that is not deployed any more."""
    loaded = sys.modules.pop(module, None)
    if loaded is not None and loaded.__file__ is not None:
        linecache.cache.pop(loaded.__file__, None)


def _find_app(module: ModuleType, filename: str) -> App:
    apps = {id(value): value for value in vars(module).values() if isinstance(value, App)}
    if len(apps) != 1:
        raise SourceError(
            f"{filename} must define exactly one App at its top level (`app = App(...)`), but defines {len(apps)}"
        )
    return next(iter(apps.values()))


def _reason(error: BaseException, path: str) -> str:
    match error:
        case DefinitionError():
            return str(error)
        case ValidationError():
            return exception_message(error)
        case SyntaxError() if error.filename in (path, None):
            return f"{type(error).__name__}: {error.msg}"  # The text also has the name and the line.
        case _:
            return exception_text(error)


def _line_of(error: BaseException, path: str) -> str:
    if isinstance(error, SyntaxError) and error.filename == path and error.lineno is not None:
        return f":{error.lineno}"
    line, frame = None, error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == path:
            line = frame.tb_lineno
        frame = frame.tb_next
    return "" if line is None else f":{line}"
