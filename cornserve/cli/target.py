"""What is to be deployed: a Python file, a model directory, or a Hugging Face id."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from cornserve.app.app import check_name
from cornserve.app.record import AppSpec
from cornserve.app.source import load_app
from cornserve.cli.console import Problem
from cornserve.task.errors import DefinitionError
from cornserve_tasklib import ChatRequest

HUGGING_FACE_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")


class Target(NamedTuple):
    name: str
    spec: AppSpec
    takes_chats: bool

    @property
    def invitation(self) -> str:
        """How to talk to it."""
        return f"cornserve chat {self.name}" if self.takes_chats else f"cornserve invoke {self.name} JSON"


def resolve(target: str, *, name: str | None, replicas: int) -> Target:
    """Raises `Problem` if there is nothing that could be deployed."""
    path = Path(target).expanduser()
    try:
        if target.endswith(".py"):
            return _file(path, name, replicas)
        if path.is_dir():
            return _model(_model_directory(path), name, replicas)
        if path.exists() or not HUGGING_FACE_ID.fullmatch(target) or target.startswith((".", "~")):
            raise Problem(f"{target} is no Python file (.py), model directory or Hugging Face id (OWNER/NAME)")
        return _model(target, name, replicas)
    except DefinitionError as error:
        raise Problem(str(error)) from error


def _file(path: Path, name: str | None, replicas: int) -> Target:
    try:
        source = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise Problem(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    app = load_app(source, "cornserve_deploy", filename=path.name)
    if name not in (None, app.name):
        raise Problem(f"{path} defines the app {app.name!r}: change the name there, or leave out --name {name}")
    return Target(app.name, AppSpec(source=source, replicas=replicas), app.request_type is ChatRequest)


def _model_directory(path: Path) -> str:
    if not (path / "config.json").is_file():
        raise Problem(f"{path} is no model directory: it has no config.json")
    return str(path.resolve())


def _model(model: str, name: str | None, replicas: int) -> Target:
    name = name or name_of(model)
    check_name(name)
    return Target(name, AppSpec(model=model, replicas=replicas), takes_chats=True)


def name_of(model: str) -> str:
    """The last part of a directory or id, as an app may be called."""
    last = model.rstrip("/").rpartition("/")[2].lower()
    return re.sub(r"[^a-z0-9._-]+", "-", last)[:63].strip("._-")
