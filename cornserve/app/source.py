"""Turns the source of an app, as it was deployed, into the app.

Every version is imported as a module of its own, so that a redeployed app never meets the old one's classes,
and two apps may define classes of the same name. App code is trusted [C §5.2] and may be slow to import: callers
that own an event loop run this in a thread.
"""

from __future__ import annotations

import linecache
import sys
from types import ModuleType

from cornserve.app.app import App
from cornserve.task.errors import DefinitionError


class SourceError(DefinitionError):
    """The source does not give an app; the message says where and why."""


def load_app_source(source: str, module: str, *, filename: str = "app.py") -> App:
    """The one `App` that the source defines at its top level.

    Args:
        module: the name to import it under, unique to this version of the app.
        filename: what error messages call the source.
    Raises:
        SourceError: the source cannot be imported, or defines no app or several.
    """
    loaded = ModuleType(module)
    loaded.__file__ = f"<{module}>/{filename}"
    # Tracebacks quote the source from here, and pydantic resolves annotations through sys.modules.
    linecache.cache[loaded.__file__] = (len(source), None, source.splitlines(keepends=True), loaded.__file__)
    sys.modules[module] = loaded
    try:
        exec(compile(source, loaded.__file__, "exec", dont_inherit=True), loaded.__dict__)
        return _only_app(loaded, filename)
    except SourceError:
        unload_app(module)
        raise
    except BaseException as error:
        unload_app(module)
        raise SourceError(f"{filename}{_line_of(error, loaded.__file__)}: {type(error).__name__}: {error}") from error


def unload_app(module: str) -> None:
    """Forgets a version that is no longer deployed."""
    loaded = sys.modules.pop(module, None)
    if loaded is not None and loaded.__file__ is not None:
        linecache.cache.pop(loaded.__file__, None)


def _only_app(module: ModuleType, filename: str) -> App:
    apps = {id(value): value for value in vars(module).values() if isinstance(value, App)}
    if len(apps) != 1:
        raise SourceError(f"{filename} must define one App at its top level (`app = App(...)`), but has {len(apps)}")
    return next(iter(apps.values()))


def _line_of(error: BaseException, path: str) -> str:
    if isinstance(error, SyntaxError):
        return f":{error.lineno}"
    line, frame = None, error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == path:
            line = frame.tb_lineno
        frame = frame.tb_next
    return "" if line is None else f":{line}"
