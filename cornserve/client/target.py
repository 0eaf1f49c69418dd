"""What is to be deployed: an app, a Python file or its text, a model directory, or a Hugging Face id."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from cornserve.app.app import App, check_name
from cornserve.app.record import AppSpec, Balance
from cornserve.app.source import SourceError, load_app_source, unload_app
from cornserve.client.errors import TargetError
from cornserve.task.errors import DefinitionError
from cornserve_tasklib import ChatRequest
from cornserve_tasklib.families import default_paths
from cornserve_tasklib.hub import is_hub_id

SpecOf = Callable[..., AppSpec]


class Target(NamedTuple):
    name: str
    spec: AppSpec
    takes_chats: bool

    @property
    def invitation(self) -> str:
        """How to talk to it."""
        return f"cornserve chat {self.name}" if self.takes_chats else f"cornserve invoke {self.name} JSON"


def resolve(
    what: App | AppSpec | Target | Path | str,
    *,
    name: str | None,
    replicas: int | None = None,
    balance: Balance = "least-loaded",
    shares: Mapping[str, float] | None = None,
) -> Target:
    """Raises `TargetError` if there is nothing that could be deployed. May import the app: slow."""
    given: dict[str, Any] = {} if replicas is None else {"replicas": replicas}  # What is not given stays as it is.
    spec_of = partial(AppSpec, balance=balance, shares=None if shares is None else dict(shares), **given)
    try:
        match what:
            case Target():
                return what
            case AppSpec():
                return _spec(what, "the source", name)
            case App():
                from cornserve.client.capture import source_of

                return _spec(spec_of(source=source_of(what)), "the source", name)
            case str() if "\n" in what:
                return _spec(spec_of(source=what), "the source", name)
            case _:
                return _place(str(what), name, spec_of)
    except ValidationError as error:
        raise TargetError(
            "; ".join(detail["msg"].removeprefix("Value error, ") for detail in error.errors())
        ) from error
    except DefinitionError as error:
        raise TargetError(str(error)) from error


def _place(place: str, name: str | None, spec_of: SpecOf) -> Target:
    try:
        path = Path(place).expanduser()
        is_directory, is_there = path.is_dir(), path.exists()
    except (OSError, RuntimeError) as error:  # the latter: "~" of nobody
        raise TargetError(f"cannot look for {place}: {getattr(error, 'strerror', None) or error}") from error
    if place.endswith(".py"):
        return _spec(spec_of(source=_text(path)), path, name)
    if is_directory:
        return _spec(spec_of(model=_model_directory(path)), path, name)
    if is_there or not is_hub_id(place) or "/" not in place:  # a mere NAME is rather a file that is elsewhere
        raise TargetError(f"{place} is no Python file (.py), model directory or Hugging Face id (OWNER/NAME)")
    return _spec(spec_of(model=place), path, name)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, ValueError) as error:  # the latter: no text, or no path
        raise TargetError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error


def _model_directory(path: Path) -> str:
    if not (path / "config.json").is_file():
        raise TargetError(f"{path} is no model directory: it has no config.json")
    return str(path.resolve())


def _spec(spec: AppSpec, origin: Path | str, name: str | None) -> Target:
    """`origin`: what error messages call it."""
    if spec.model is not None:
        name = name or name_of(spec.model)
        check_name(name)
        return Target(name, spec, _takes_chats(spec.model))
    assert spec.source is not None
    module = f"cornserve_deploy_{uuid.uuid4().hex}"
    try:
        app = load_app_source(spec.source, module, filename=origin.name if isinstance(origin, Path) else "app.py")
    except SourceError as error:
        if name is not None and isinstance(error.__cause__, ModuleNotFoundError):
            return Target(name, spec, takes_chats=False)  # what is not installed here may be where the gateway is
        raise
    unload_app(module)
    if name not in (None, app.name):
        raise TargetError(f"{origin} defines the app {app.name!r}: change the name there, or leave out the name {name}")
    return Target(app.name, spec, ChatRequest in app.request_types)


def _takes_chats(model: str) -> bool:
    try:
        return any(ChatRequest in path.request_types() for path in default_paths(model).values())
    except DefinitionError:
        return True  # as most do: what is not known here may be where the gateway is


def name_of(model: str) -> str:
    """The last part of a directory or id, as an app may be called."""
    last = model.rstrip("/").rpartition("/")[2].lower()
    return re.sub(r"[^a-z0-9._-]+", "-", last)[:63].strip("._-")
