"""Records the executor graph of an app from code: runs its paths for probes, without executors [C §4.1].

This runs the app's code: only processes that may run the code call it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from cornserve.app.app import App
from cornserve.app.component_order import ComponentOrder
from cornserve.app.conditional_units import ConditionalUnits, task_option
from cornserve.app.graph import AppGraph, GraphModalities, GraphOption, GraphPath, GraphStep, no_graph_reason
from cornserve.app.load import load_app, with_all_paths
from cornserve.app.probed_types import ProbedType, probe_types
from cornserve.app.source import unload_app
from cornserve.app.spec import AppSpec
from cornserve.task.component_parts import ComponentParts
from cornserve.task.dry_record import DryRecording
from cornserve.task.errors import DefinitionError
from cornserve.task.unit import UnitTask
from cornserve_tasklib.chat_request import ChatRequest
from cornserve_tasklib.image_generation import ImageGenerationRequest


class SpecGraph(NamedTuple):
    """The executor graph of an app's spec, with all paths of a model's family.

    Args:
        executors: the names of the executors, by option.
        deployed: the options that the spec deploys.
    """

    graph: AppGraph
    executors: dict[str, str]
    deployed: tuple[str, ...]


def graph_of_spec(name: str, spec: AppSpec, module: str) -> SpecGraph:
    """Returns the executor graph of the app that the spec defines.

    Imports and runs code of the app once, as `module`. Raises `DefinitionError`.
    """
    app = load_app(name, with_all_paths(spec), module)
    try:
        graph = record_graph(app)
        specs, deployed = app.executor_specs(), app if spec.model is None else load_app(name, spec, module)
    finally:
        unload_app(module)
    if graph is None:
        raise DefinitionError(no_graph_reason(name))
    keys = {name: option.executor for name, option in graph.options.items()}
    used = deployed.executor_specs()
    executors = {name: specs[key].executor for name, key in keys.items()}
    return SpecGraph(graph, executors, tuple(name for name, key in keys.items() if key in used))


def record_graph(app: App) -> AppGraph | None:
    """Returns the executor graph. None if no request type is known: the app has no probes, not even default ones.

    Raises `DefinitionError` if a path cannot serve a request type, or needs other components for it than the first one.
    """
    types = probe_types(app)
    if not types:
        return None
    recordings = [recording for probed in types for recording in probed.recordings if recording is not None]
    order = ComponentOrder(recordings)
    conditional = ConditionalUnits.find(app, types)
    options = _named([*_options(recordings, order), *conditional.options()], ComponentParts(order.after()))
    option_names = {option.executor: name for name, option in options.items()}

    def path(index: int) -> GraphPath:
        steps = {
            order.name(probed.components): _steps(recording, order, option_names)
            for probed in types
            if (recording := probed.recordings[index]) is not None
        }
        return GraphPath(task=app.paths[index].name, steps=steps, conditional=conditional.steps(index, option_names))

    return AppGraph(
        components={**order.after(), **dict.fromkeys(conditional.components.values(), ())},
        options=options,
        types={order.name(probed.components): order.sorted(probed.components) for probed in types},
        paths=tuple(map(path, range(len(app.paths)))),
        modalities=_modalities(types, order),
    )


def _options(recordings: Iterable[DryRecording], order: ComponentOrder) -> list[GraphOption]:
    """Returns the options that are recorded. Equal executors are one option."""
    tasks: dict[str, UnitTask[Any, Any]] = {}
    components: dict[str, frozenset[str]] = {}
    for recording in recordings:
        for invocation, run in recording.steps:
            key = invocation.executor_key
            tasks.setdefault(key, invocation.task)
            components[key] = components.get(key, frozenset()) | run
    return [task_option(task, order.sorted(components[key])) for key, task in tasks.items()]


def _named(options: list[GraphOption], parts: ComponentParts) -> dict[str, GraphOption]:
    """Names options by their components. If several have the same ones, GPUs and numbers distinguish them."""
    by_components = ["+".join(parts.joined(option.components)) for option in options]
    names = _distinguished(by_components, [f"{option.gpus}gpu" for option in options])
    numbers = [str(names[: index + 1].count(name)) for index, name in enumerate(names)]
    return dict(zip(_distinguished(names, numbers), options, strict=True))


def _distinguished(names: Sequence[str], suffixes: Sequence[str]) -> list[str]:
    """Adds the suffix to each name that is not unique."""
    counts = Counter(names)
    return [f"{name}-{suffix}" if counts[name] > 1 else name for name, suffix in zip(names, suffixes, strict=True)]


def _steps(recording: DryRecording, order: ComponentOrder, option_names: Mapping[str, str]) -> tuple[GraphStep, ...]:
    run: dict[str, frozenset[str]] = {}
    for invocation, components in recording.steps:
        option = option_names[invocation.executor_key]
        run[option] = run.get(option, frozenset()) | components
    return tuple(GraphStep(option=option, components=order.sorted(components)) for option, components in run.items())


def _modalities(types: Iterable[ProbedType], order: ComponentOrder) -> GraphModalities | None:
    """Returns the components by modality of chats, if there is a probe without media, or of requests for images."""
    images = {probed.components for probed in types if isinstance(probed.probe, ImageGenerationRequest)}
    if len(images) == 1:
        return GraphModalities(always=(), inputs={}, outputs={"image": order.sorted(images.pop())})
    chats = [probed for probed in types if isinstance(probed.probe, ChatRequest)]
    always = next((probed.components for probed in chats if not probed.probe.media), None)
    if always is None:
        return None
    inputs: dict[str, frozenset[str]] = {}
    for probed in chats:
        for modality in {medium.modality for medium in probed.probe.media}:
            inputs.setdefault(modality, probed.components - always)
    return GraphModalities(
        always=order.sorted(always),
        inputs={modality: order.sorted(components) for modality, components in inputs.items() if components},
    )
