"""Loads an app from its spec."""

from __future__ import annotations

from collections.abc import Mapping, Set

from pydantic import JsonValue

from cornserve.app.app import App
from cornserve.app.source import SourceError, load_app_source, unload_app
from cornserve.app.spec import AppSpec
from cornserve.task.errors import DefinitionError
from cornserve_tasklib.media_options import MediaOptions
from cornserve_tasklib.model_families import ModelPaths, alternatives, default_paths, planned_paths
from cornserve_tasklib.model_options import ModelOptions


def load_app(name: str, spec: AppSpec, module: str) -> App:
    """Returns the app that the spec defines. Source is imported as `module`. Slow: do not call it from an event loop.

    Raises `DefinitionError` if the spec does not define an app of this name that can run with the installed executors.
    """
    app = _build(name, spec, module)
    try:
        app.executor_specs()
    except BaseException:
        unload_app(module)
        raise
    return app


def with_all_paths(spec: AppSpec, *, also_split: bool = False) -> AppSpec:
    """Returns the spec with shares for all paths of the model from which a plan chooses. Reads its files.

    An app with source always has all of its paths. Raises `DefinitionError` if the model is not of a known family, or
    does not have a path of the spec.

    Args:
        also_split: whether to add paths on which prefill and decode run apart. By default, if the spec has such a path.
    """
    model = spec.model
    if model is None:
        return spec
    paths = model_paths(spec)
    used = [path for path, share in (model.shares or {}).items() if share]
    _check_known(model.id, paths, {*used})
    found = alternatives(paths, next(iter(used or paths))) if also_split else planned_paths(paths, used)
    return spec.with_model(shares=dict.fromkeys(found, 1))


def model_paths(spec: AppSpec) -> ModelPaths:
    """Returns all paths of the spec's model. May read its files.

    Raises `DefinitionError` if the model cannot be served, or not with these options.
    """
    model = spec.model
    assert model is not None
    media = model.media_options or MediaOptions()
    options = ModelOptions(model.revision, model.lora, _options(spec), media, model.drawer, model.drawer_summary)
    return default_paths(model.id, options, model.summary)


def _options(spec: AppSpec) -> dict[str, dict[str, JsonValue]]:
    return {override.name: override.options for override in spec.executors}


def _build(name: str, spec: AppSpec, module: str) -> App:
    if spec.model is not None:
        return _build_from_model(name, spec.model.id, spec.model.shares, model_paths(spec))
    assert spec.source is not None
    if spec.source.inline is None:
        reference = spec.source.config_map_key_ref
        assert reference is not None
        raise DefinitionError(
            f"the source is missing: create a ConfigMap {reference.name!r} with the key {reference.key!r}"
        )
    if any(_options(spec).values()):
        raise DefinitionError(
            "executors: options cannot be set for an app with source: set them in the source, such as "
            "LLMTask(…, options=EngineOptions(…))"
        )
    app = load_app_source(spec.source.inline, module, filename=spec.source.filename)
    if app.name != name:
        unload_app(module)
        raise SourceError(
            f"the source defines the app {app.name!r}, but is deployed as {name!r}: change the name in the source, or "
            f"deploy it as {app.name!r}"
        )
    return app


def _build_from_model(name: str, model: str, shares: Mapping[str, float] | None, paths: ModelPaths) -> App:
    if shares is None:
        shares = {next(iter(paths)): 1.0}
    _check_known(model, paths, shares.keys())
    used = {path: share for path, share in shares.items() if share}
    return App(name=name, paths=[paths[path] for path in used], shares=list(used.values()))


def _check_known(model: str, paths: ModelPaths, names: Set[str]) -> None:
    for path in names - paths.keys():
        raise DefinitionError(f"unknown path {path!r} of {model}: choose from {', '.join(paths)}")
