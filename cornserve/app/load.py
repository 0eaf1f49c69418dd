"""From an app's spec to the app."""

from __future__ import annotations

from collections.abc import Mapping

from cornserve.app.app import App
from cornserve.app.record import AppSpec
from cornserve.app.source import SourceError, load_app_source, unload_app
from cornserve.task.errors import DefinitionError
from cornserve_tasklib.families import default_paths


def load(name: str, spec: AppSpec, module: str) -> App:
    """The app, imported as `module` where it has source. Slow and blocking: not for an event loop.

    Raises `DefinitionError` if the spec gives no app of this name that could run here.
    """
    app = _build(name, spec, module)
    try:
        app.executor_specs()
    except BaseException:
        unload_app(module)
        raise
    return app


def _build(name: str, spec: AppSpec, module: str) -> App:
    if spec.model is not None:
        return _served_as_its_family(name, spec.model, spec.shares)
    assert spec.source is not None
    app = load_app_source(spec.source, module)
    if app.name != name:
        unload_app(module)
        raise SourceError(f"the source defines the app {app.name!r}, but is deployed as {name!r}")
    return app


def _served_as_its_family(name: str, model: str, shares: Mapping[str, float] | None) -> App:
    paths = default_paths(model)
    if shares is None:
        shares = {next(iter(paths)): 1.0}
    for path in shares.keys() - paths.keys():
        raise DefinitionError(f"{model} has no path {path!r}: there are {', '.join(paths)}")
    taken = {path: share for path, share in shares.items() if share}
    return App(name=name, paths=[paths[path] for path in taken], shares=list(taken.values()))
