"""The mixes of requests with which each option of an app is measured [C Algorithm 3]."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import cycle
from random import Random
from typing import Any

from pydantic import TypeAdapter, ValidationError

from cornserve.app.app import App
from cornserve.app.graph import AppGraph, GraphOption
from cornserve.app.isolation import input_sources, recorded_components
from cornserve.app.media_slots import find_media_slots
from cornserve.app.probes import sample_media
from cornserve.exception_text import exception_message
from cornserve.profiler.errors import ProfilingError
from cornserve.profiler.request_templates import RequestTemplate
from cornserve.profiler.results import MixShare, describe_mix
from cornserve.task.component_parts import ComponentParts
from cornserve.task.errors import DefinitionError, TaskError
from cornserve.task.unit import UnitTask, unit_tasks
from cornserve.validation_errors import describe_all

MAX_PURE_MIXES = 3


class RequestsRefusedError(ProfilingError):
    """The app or its options cannot serve the requests. The message is for users."""


@dataclass(frozen=True, slots=True)
class OptionMix:
    """Requests of one path with which an option is measured.

    Args:
        path: the index of the path.
        templates: the requests, in the order of the workload.
    """

    path: int
    mix: tuple[MixShare, ...]
    templates: tuple[RequestTemplate, ...]

    @property
    def digest(self) -> str:
        return sha256(
            b"\n".join((str(self.path).encode(), *(template.key for template in self.templates)))
        ).hexdigest()[:16]

    def requests(self) -> Iterator[bytes]:
        """Yields the requests in turn, without end."""
        random = Random(0)
        return (template.make(random) for template in cycle(self.templates))

    @property
    def description(self) -> str:
        return describe_mix(self.mix)


@dataclass(frozen=True, slots=True)
class MeasuredOption:
    """An option of an app, and the mixes with which it is measured.

    Args:
        sources: the largest number of executors that produce its inputs on a path.
    """

    name: str
    graph: GraphOption
    unit: UnitTask[Any, Any]
    mixes: tuple[OptionMix, ...]
    sources: int


def measured_options(
    app: App, graph: AppGraph, templates: Sequence[RequestTemplate], only: Sequence[str]
) -> list[MeasuredOption]:
    """Returns the options that the requests need, with their mixes.

    An option is measured with each set of its components that requests need, and with the requests' own mix if they
    need several. The planner separates the times of the components by the differences.

    Args:
        templates: the requests of the workload.
        only: names of options; empty for all that the requests need.
    Raises:
        RequestsRefusedError: a request or an option is unknown, or no request needs an option of `only`.
    """
    for name in only:
        if name not in graph.options:
            raise RequestsRefusedError(f"unknown option {name!r} of {app.name}: give one of {', '.join(graph.options)}")
    requests = [_parse(app, number, template.make(Random(0))) for number, template in enumerate(templates, start=1)]
    units = {unit.key: unit for path in app.paths for unit in unit_tasks(path)}
    options = {
        name: option for name, option in graph.options.items() if not graph.conditional.issuperset(option.components)
    }
    if excluded := [name for name in only if name not in options]:
        raise RequestsRefusedError(
            f"the option {excluded[0]} of {app.name} runs only after a value has arrived, so its inputs are unknown: "
            "measure it in an app that calls it first, and leave it out with --option"
        )
    parts = ComponentParts(graph.components)
    found = [
        _measured_option(
            app, name, option, units[option.executor], tuple(_mixes(app, option, templates, requests, parts))
        )
        for name, option in options.items()
        if not only or name in only
    ]
    for option in found:
        if not option.mixes and option.name in only:
            raise RequestsRefusedError(
                f"no request needs the option {option.name} ({', '.join(option.graph.components)}): add such requests, "
                "or leave it out with --option"
            )
    return [option for option in found if option.mixes]


def _measured_option(
    app: App, name: str, option: GraphOption, unit: UnitTask[Any, Any], mixes: tuple[OptionMix, ...]
) -> MeasuredOption:
    sources = (len(input_sources(app.paths[mix.path], option.executor)) for mix in mixes)
    return MeasuredOption(name, option, unit, mixes, max(sources, default=0))


def _parse(app: App, number: int, body: bytes) -> Any:
    try:
        request = TypeAdapter(app.request_type).validate_json(body)
    except ValidationError as error:
        raise RequestsRefusedError(
            f"request {number} is not a request of {app.name}: {describe_all(error.errors())}: correct it"
        ) from error
    for slot in find_media_slots(request):
        media = sample_media(slot.modality, slot.path)
        slot.set_media(media.model_copy(update={"of_video": True}) if slot.is_sound else media)
    return request


def _mixes(
    app: App,
    option: GraphOption,
    templates: Sequence[RequestTemplate],
    requests: Sequence[Any],
    parts: ComponentParts,
) -> Iterator[OptionMix]:
    pure: dict[frozenset[str], OptionMix] = {}  # By set of components, of the path on which most requests need it.
    own: OptionMix | None = None
    for path in range(len(app.paths)):
        groups = _groups(app, path, option.executor, templates, requests, parts)
        if len(groups) > 1 and own is None:
            own = _mix(path, option, groups, templates)
        for components, members in groups.items():
            if components not in pure or len(members) > len(pure[components].templates):
                pure[components] = _mix(path, option, {components: members}, templates)
    largest_first = sorted(pure, key=len, reverse=True)
    chosen = [*largest_first[: MAX_PURE_MIXES - 1], *largest_first[MAX_PURE_MIXES - 1 :][-1:]]
    yield from (pure[components] for components in chosen)
    if own is not None:
        yield own


def _groups(
    app: App,
    path: int,
    executor: str,
    templates: Sequence[RequestTemplate],
    requests: Sequence[Any],
    parts: ComponentParts,
) -> dict[frozenset[str], list[int]]:
    """Returns the numbers of the requests by the components that the executor runs for them."""
    groups: dict[frozenset[str], list[int]] = {}
    if executor not in {unit.key for unit in unit_tasks(app.paths[path])}:
        return groups
    for number, request in enumerate(requests):
        try:
            components = parts.split(recorded_components(app.paths[path], executor, request))
        except (TaskError, DefinitionError, ValueError) as error:
            raise RequestsRefusedError(
                f"{app.paths[path].name} of {app.name} refuses the request {templates[number].key[:80]!r}: "
                f"{exception_message(error)}"
            ) from error
        if components:
            groups.setdefault(components, []).append(number)
    return groups


def _mix(
    path: int, option: GraphOption, groups: dict[frozenset[str], list[int]], templates: Sequence[RequestTemplate]
) -> OptionMix:
    numbers = sorted(number for members in groups.values() for number in members)
    shares = [
        MixShare(
            components=tuple(component for component in option.components if component in components),
            share=len(members) / len(numbers),
        )
        for components, members in groups.items()
    ]
    return OptionMix(path, tuple(shares), tuple(templates[number] for number in numbers))
