"""The executor graph of an app [C §4.1]: deployment options, request types, and the steps of each path."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict, JsonValue

from cornserve.task.component_parts import wholes


def no_graph_reason(app: str) -> str:
    """Returns why the executor graph of an app is unknown."""
    return (
        f"the executor graph of {app!r} is unknown: its request type has no default probes, or its "
        "paths refuse them: pass App(…, probes=[…]) with one request of each type"
    )


def always_runs_reason(components: Iterable[str]) -> str:
    """Returns why the frequencies of these components are refused."""
    return f"every request of the type runs {', '.join(components)}: remove it, or list the other requests as a type"


class GraphOption(BaseModel):
    """A deployment option: an executor of the app, and the components that it can run.

    Args:
        executor: the key of its executor spec.
        task: the name of the unit task's class.
        settings: the unit task's fields.
        components: the components that it runs for any request, in the order of the data.
        gpus: GPUs of a replica.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    executor: str
    task: str
    settings: dict[str, JsonValue]
    components: tuple[str, ...]
    gpus: int


class GraphStep(BaseModel):
    """An option, and the components that it runs in this step of a path."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    option: str
    components: tuple[str, ...]


class GraphPath(BaseModel):
    """A path of the app: the name of its task, and its steps in the order of the data, by request type.

    The steps of a type are absent if the path waits for a value before it records all components of the type.

    Args:
        conditional: the steps that may follow once a value has arrived, for any type.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    task: str
    steps: dict[str, tuple[GraphStep, ...]]
    conditional: tuple[GraphStep, ...] = ()


class GraphModalities(BaseModel):
    """The components that chats or requests for images need.

    Args:
        always: those of every request.
        inputs: those that inputs need in addition, by modality: `image`, `audio`, `video`.
        outputs: those that outputs need in addition, by modality: `image`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    always: tuple[str, ...]
    inputs: dict[str, tuple[str, ...]]
    outputs: dict[str, tuple[str, ...]] = {}


class AppGraph(BaseModel):
    """The executor graph of an app.

    Args:
        components: by name, the components whose output each component consumes.
        options: deployment options by name.
        types: the components of each request type, by the type's name: its components, joined by `+`.
        paths: the app's paths, in order.
        modalities: the components of chats or of requests for images, if the app takes them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    components: dict[str, tuple[str, ...]]
    options: dict[str, GraphOption]
    types: dict[str, tuple[str, ...]]
    paths: tuple[GraphPath, ...]
    modalities: GraphModalities | None = None

    @property
    def conditional(self) -> frozenset[str]:
        """The components that run only after a value has arrived. Types do not contain them."""
        return frozenset(component for path in self.paths for step in path.conditional for component in step.components)

    def always_run(self, components: Iterable[str]) -> list[str]:
        """Returns those of the components that do not only run after a value has arrived, sorted."""
        return sorted(set(components) - self.conditional)

    def type_of(self, components: Iterable[str]) -> str:
        """Returns the name of the request type that needs these components, or their parts, and any conditional ones.

        Raises `KeyError` if the graph does not have this type.
        """
        types = {wholes(known): name for name, known in self.types.items()}
        return types[wholes(components) - self.conditional]
