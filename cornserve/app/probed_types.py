"""Request types of an app, from dry records of its probes on each path."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from cornserve.app.app import App
from cornserve.app.probes import default_probes
from cornserve.exception_text import exception_message
from cornserve.task.component_parts import ComponentParts
from cornserve.task.dry_record import DryRecording
from cornserve.task.errors import DefinitionError


@dataclass(frozen=True, slots=True)
class ProbedType:
    """A request type.

    Args:
        probe: a request of the type.
        components: the components that it needs, or their parts if a path runs these.
        recordings: by path, with the same parts. None for a path that records other components than the first one, if
            one of the two waits for a value before it has recorded all of them.
    """

    probe: Any
    components: frozenset[str]
    recordings: tuple[DryRecording | None, ...]


def probe_types(app: App) -> list[ProbedType]:
    """Records the app's probes on each of its paths, or else the default probes that a path can serve.

    Raises `DefinitionError` if a path cannot serve a probe, or if two paths need different components for it.
    """
    types: dict[frozenset[str], ProbedType] = {}
    found = [
        (probe, [_record(app, index, probe) for index in range(len(app.paths))])
        for probe in app.probes or default_probes(app)
    ]
    parts = _parts(recording for _, recordings in found for recording in recordings)
    for probe, recordings in found:
        if not app.probes and all(isinstance(recording, Exception) for recording in recordings):
            continue  # the app takes no requests like this default probe
        probed = _check_alternatives(app, probe, recordings, parts)
        if probed.components:
            types.setdefault(probed.components, probed)
    return list(types.values())


def _parts(recordings: Iterable[DryRecording | Exception]) -> ComponentParts:
    """Returns the parts of components that paths run. Splits the components of all recordings into them."""
    records = [recording for recording in recordings if isinstance(recording, DryRecording)]
    parts = ComponentParts(name for recording in records for components in recording.components for name in components)
    for recording in records:
        recording.split_components(parts)
    return parts


def _record(app: App, index: int, probe: Any) -> DryRecording | Exception:
    """Returns the error of the path's code if it raises one."""
    recording = DryRecording(max_invocations=app.max_invocations)
    try:
        recording.record(app.paths[index], probe)
    except Exception as error:
        return error
    return recording


def _check_alternatives(
    app: App, probe: Any, found: Sequence[DryRecording | Exception], parts: ComponentParts
) -> ProbedType:
    recordings = [recording for recording in found if isinstance(recording, DryRecording)]
    needed = recordings[0].needed_components if recordings else frozenset()
    for index, recording in enumerate(found):
        if isinstance(recording, Exception):
            raise DefinitionError(
                f"{_path(app, index)} cannot serve requests of {_type(needed)}: {_reason(recording)} for "
                f"{_shown(probe)}: correct its task, remove the path, or pass other `probes`"
            ) from recording
    return ProbedType(
        probe, parts.split(needed), tuple(_check_same(app, index, recordings) for index in range(len(recordings)))
    )


def _check_same(app: App, index: int, recordings: Sequence[DryRecording]) -> DryRecording | None:
    first, recording = recordings[0], recordings[index]
    if recording.needed_components == first.needed_components:
        return recording
    if not (recording.is_complete and first.is_complete):
        return None
    raise DefinitionError(
        f"{_path(app, index)} is not an alternative for requests of {_type(first.needed_components)}: it needs "
        f"{_listed(recording.needed_components)}, but path 1 ({app.paths[0].name}) needs "
        f"{_listed(first.needed_components)}: correct `components` of the unit tasks, or deploy the path as another app"
    )


def _path(app: App, index: int) -> str:
    return f"path {index + 1} ({app.paths[index].name}) of app {app.name!r}"


def _type(components: frozenset[str]) -> str:
    return f"the type {'+'.join(sorted(components))}" if components else "any type"


def _listed(components: frozenset[str]) -> str:
    return ", ".join(sorted(components)) or "no components"


def _reason(error: Exception) -> str:
    return f"it raises {type(error).__name__}({exception_message(error, 200)!r})"


def _shown(probe: Any) -> str:
    try:
        text = repr(probe)
    except Exception:  # the app may define the class
        text = type(probe).__name__
    return text if len(text) <= 100 else f"{text[:97]}..."
