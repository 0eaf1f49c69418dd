"""Apps that run one executor of another app alone, for measurements [C App. C].

The other executors are left out if they consume its outputs. Those that produce its inputs are replaced by sources,
which publish tensors of the same shapes without the work. Images to edit, which requests as JSON cannot contain, are
gray.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from typing import Any

from pydantic import BaseModel, PrivateAttr
from pydantic_core import to_json

from cornserve.app.app import App
from cornserve.app.load import load_app
from cornserve.app.spec import AppSpec
from cornserve.png import png_file
from cornserve.task.base import Task
from cornserve.task.dry_record import DryRecording
from cornserve.task.errors import DefinitionError
from cornserve.task.recording import Invocation
from cornserve.task.references import Blob, Origin, TensorReference
from cornserve.task.unit import UnitTask, unit_tasks
from cornserve_tasklib.image_editing import ImageEditRequest


class IsolatedResult(BaseModel):
    """The response of an app that runs one executor alone."""

    invocations: int
    """Invocations of the executor that have ended."""


def isolated_source(name: str, app: str, spec: AppSpec, path: int, executor: str) -> str:
    """Returns the source of an app `name` that runs one executor of the app `app` alone.

    Args:
        path: the index of the app's path whose invocations of the executor are run.
        executor: the key of the executor.
    """
    arguments = f"{name!r}, {app!r}, {spec.model_dump_json(exclude_unset=True)!r}, {path}, {executor!r}"
    return f"from cornserve.app.isolation import isolated_app\n\napp = isolated_app({arguments})\n"


def isolated_app(name: str, app: str, spec_json: str, path: int, executor: str) -> App:
    """Returns the app of `isolated_source`. Raises `DefinitionError` if a needed task has no input source."""
    module = f"isolated_{sha256(repr((name, app, spec_json, path, executor)).encode()).hexdigest()[:16]}"
    loaded = load_app(app, AppSpec.model_validate_json(spec_json), module)
    return App(name, [_isolated_path(loaded.paths[path], executor)], max_invocations=loaded.max_invocations)


def _isolated_path(path: Task[Any, Any], executor: str) -> IsolatedPath:
    units = {unit.key: unit for unit in unit_tasks(path)}
    if executor not in units:
        raise DefinitionError(f"{path.name} has no executor {executor}: give one of {', '.join(units)}")
    isolated = _typed(path)(executor=executor, measured=units[executor], sources=input_sources(path, executor))
    isolated._path = path
    return isolated


def _needed_invocations(recording: DryRecording, executor: str) -> list[Invocation]:
    """Returns the invocations of the executor, and those that produce their inputs, in order."""
    found: set[int] = set()
    for invocation in reversed(recording.invocations):
        if invocation.executor_key == executor or invocation.index in found:
            found |= {invocation.index, *(origin.invocation for origin in invocation.origins)}
    return [recording.invocations[index] for index in sorted(found)]


class IsolatedPath(Task[Any, IsolatedResult]):
    """Runs the invocations of one executor in a path of an app."""

    executor: str
    measured: Any
    """The executor's unit task."""
    sources: dict[str, Any]
    """The unit tasks that replace other executors, by their keys."""

    _path: Task[Any, Any] = PrivateAttr()

    def invoke(self, request: Any) -> IsolatedResult:
        recording = DryRecording()
        recording.record(self._path, _with_file(request))
        outputs: dict[int, Any] = {}
        measured = []
        for invocation in _needed_invocations(recording, self.executor):
            unit, is_measured = self._unit(invocation)
            inputs = [self._input(value, outputs) for value in invocation.inputs]
            output = UnitTask.invoke(unit, unit.decode(invocation.request, inputs))
            outputs[invocation.index] = output
            if is_measured:
                measured.append(output)
        for output in measured:
            _ = output.model_fields_set  # Waits until the invocation has ended.
        return IsolatedResult(invocations=len(measured))

    def _unit(self, invocation: Invocation) -> tuple[UnitTask[Any, Any], bool]:
        if invocation.executor_key == self.executor:
            return self.measured, True
        if invocation.executor_key not in self.sources:
            invocation.task.input_source()  # Raises `DefinitionError`.
        return self.sources[invocation.executor_key], False

    @staticmethod
    def _input(value: Origin | Blob, outputs: dict[int, Any]) -> Origin | Blob:
        if isinstance(value, Blob):
            return value
        reference = getattr(outputs[value.invocation], value.output)
        assert isinstance(reference, TensorReference)
        assert reference.origin is not None
        return reference.origin


def _with_file(request: Any) -> Any:
    """Returns an edit of an image whose size alone is given with a gray image of this size: JSON has no files."""
    if not isinstance(request, ImageEditRequest) or request.image.data is not None:
        return request
    file = _gray_file(request.image.width, request.image.height)
    # Each request has its own digest: caches of encoded images would leave out the work that is measured.
    data = {"data": Blob(file), "format": "PNG", "digest": sha256(file + to_json(request)).hexdigest()}
    return request.model_copy(update={"image": request.image.model_copy(update=data)})


@lru_cache(maxsize=16)
def _gray_file(width: int, height: int) -> bytes:
    return png_file(width, height, [b"\x80" * 3] * height)


def input_sources(path: Task[Any, Any], executor: str) -> dict[str, UnitTask[Any, Any]]:
    """Returns the unit tasks that replace the other executors of a path, by the keys of these."""
    return {
        unit.key: unit.input_source()
        for unit in unit_tasks(path)
        if unit.key != executor and unit.layout.has_tensors and type(unit).input_source is not UnitTask.input_source
    }


def _typed(path: Task[Any, Any]) -> type[IsolatedPath]:
    """Returns a class with the request type of the path."""
    typed: Any = type(f"Isolated{path.name}", (IsolatedPath,), {"__module__": __name__})
    typed.request_type = path.request_type
    isolated: type[IsolatedPath] = typed
    return isolated


def recorded_components(path: Task[Any, Any], executor: str, request: Any) -> frozenset[str]:
    """Returns the components that the executor runs for a request on the path; an empty set if it is not invoked.

    Invocations that follow only after a value has arrived do not count.
    """
    recording = DryRecording()
    recording.record(path, request)
    ran = (components for invocation, components in recording.steps if invocation.executor_key == executor)
    return frozenset[str]().union(*ran)
