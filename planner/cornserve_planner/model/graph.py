"""The executor graph: a model's components, its deployment options, and the paths of requests.

Nodes are deployment options, edges are data dependencies [C §4.2]. The paths are declared instead of enumerated: n
components have 2^n - 1 possible options, and few of them are useful.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from cornserve_planner.errors import InvalidInputError

ARROW = " → "

Edge = tuple[str, str]
"""A deployment option, and another one that consumes its output."""


@dataclass(frozen=True, slots=True)
class ModelComponent:
    """A part of a model, the smallest unit that an option separates. `after` names the components whose output it
    consumes."""

    name: str
    after: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeploymentOption:
    """A way to run one or more components in one executor.

    Args:
        gpus: GPUs of a replica.
        gpu: the type of these GPUs; None for any type.
        variant_of: name of the option in model and profile, if the model lists several numbers of GPUs for it.
    """

    name: str
    components: tuple[str, ...]
    gpus: int = 1
    gpu: str | None = None
    variant_of: str | None = None

    @property
    def profiled_as(self) -> str:
        """The name of the option in a profile."""
        return self.variant_of or self.name


@dataclass(frozen=True, slots=True)
class DeclaredPath:
    """A declared path: deployment options in the order of the data. A request skips options whose components it does
    not need."""

    options: tuple[str, ...]

    @property
    def name(self) -> str:
        return ARROW.join(self.options)


@dataclass(frozen=True, slots=True)
class RequestType:
    """Requests that need the same components.

    Args:
        frequency: by component, how many times the mean request runs it, if not once: less for components that only
            some requests run after they have received a value, such as a chat that decides to draw.
    """

    name: str
    components: frozenset[str]
    frequency: Mapping[str, float] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class PathStep:
    """An option on a path, and the components it runs there, in the model's order."""

    option: str
    role: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ValidPath:
    """A way to serve a request type: every component once, in the model's order [C App. B].

    Args:
        path: the first declared path that results in these steps. Several can, because requests skip options.
    """

    type: RequestType
    path: DeclaredPath
    steps: tuple[PathStep, ...]

    @property
    def name(self) -> str:
        return path_name(self.steps)


def path_name(steps: Iterable[PathStep]) -> str:
    """Returns the options of a path, without those that its requests skip. Unique among the paths of a type."""
    return ARROW.join(step.option for step in steps)


@dataclass(frozen=True)
class ExecutorGraph:
    """Raises `InvalidInputError` for duplicates, unknown names, cycles, and empty paths."""

    components: tuple[ModelComponent, ...]
    options: tuple[DeploymentOption, ...]
    paths: tuple[DeclaredPath, ...]
    _after: dict[str, frozenset[str]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _require_unique("components", (component.name for component in self.components))
        _require_unique("options", (option.name for option in self.options))
        _require_unique("paths", (path.name for path in self.paths))
        self._check_components()
        object.__setattr__(self, "_after", self._ancestors())
        self._check_options()
        self._check_paths()

    @cached_property
    def option(self) -> dict[str, DeploymentOption]:
        return {option.name: option for option in self.options}

    @cached_property
    def edges(self) -> frozenset[Edge]:
        """Pairs of options where, on some path, the second consumes data of the first."""
        return frozenset(
            edge for path in self.paths for edge in self.transfers(self._walk(path, self._components_of(path))[0])
        )

    def transfers(self, steps: tuple[PathStep, ...]) -> tuple[Edge, ...]:
        """Returns the pairs of options on a path between which data is transferred."""
        present = frozenset(component for step in steps for component in step.role)
        runs = {component: index for index, step in enumerate(steps) for component in step.role}
        pairs = {
            (runs[before], runs[component]): None
            for component in runs
            for before in self._direct_inputs(component, present)
            if runs[before] != runs[component]
        }
        return tuple((steps[producer].option, steps[consumer].option) for producer, consumer in sorted(pairs))

    def valid_paths(self, request_type: RequestType) -> tuple[ValidPath, ...]:
        """Returns the paths that serve a type. Paths with the same steps are returned once.

        Raises `InvalidInputError` if the type needs an unknown component or has no path.
        """
        where = f"types.{request_type.name}"
        known = {component.name for component in self.components}
        if unknown := sorted(request_type.components - known):
            raise InvalidInputError(where, f"unknown components {_listed(unknown)}: use {_listed(sorted(known))}")
        if not request_type.components:
            raise InvalidInputError(where, f"has no components: give at least one of {_listed(sorted(known))}")
        found: dict[tuple[PathStep, ...], ValidPath] = {}
        for path in self.paths:
            steps, left = self._walk(path, request_type.components)
            if not left:
                found.setdefault(steps, ValidPath(request_type, path, steps))
        if not found:
            raise InvalidInputError(where, f"has no path: {self._explain_no_path(request_type)}")
        return tuple(found.values())

    def _walk(self, path: DeclaredPath, needed: frozenset[str]) -> tuple[tuple[PathStep, ...], frozenset[str]]:
        """Returns the steps of a path, and the components that remain after it.

        An option runs all remaining components whose inputs are available [C App. C, Algorithm 3]. On the path E → EL,
        E encodes and EL only decodes.
        """
        left, steps = needed, []
        for option in path.options:
            possible = left.intersection(self.option[option].components)
            while blocked := {name for name in possible if self._after[name] & left - possible}:
                possible -= blocked
            if possible:
                role = tuple(component.name for component in self.components if component.name in possible)
                steps.append(PathStep(option, role))
                left -= possible
        return tuple(steps), left

    def _components_of(self, path: DeclaredPath) -> frozenset[str]:
        return frozenset(component for option in path.options for component in self.option[option].components)

    def _direct_inputs(self, component: str, present: frozenset[str]) -> frozenset[str]:
        """Returns the components whose output a component consumes, replacing absent components by their own inputs."""
        after = next(found.after for found in self.components if found.name == component)
        inputs: frozenset[str] = frozenset()
        for before in after:
            inputs |= {before} if before in present else self._direct_inputs(before, present)
        return inputs

    def _explain_no_path(self, request_type: RequestType) -> str:
        closest = min((self._walk(path, request_type.components)[1] for path in self.paths), key=len, default=None)
        if closest is None:
            return "the model declares no paths: add one"
        needed, left = _listed(sorted(request_type.components)), _listed(sorted(closest))
        return f"none runs all of {needed}; the closest one omits {left}: add a path that runs it"

    def _check_components(self) -> None:
        known = {component.name for component in self.components}
        for component in self.components:
            for before in component.after:
                if before not in known:
                    raise InvalidInputError(
                        f"components.{component.name}.after",
                        f"{before!r} is not a component: use one of {_listed(sorted(known))}",
                    )

    def _ancestors(self) -> dict[str, frozenset[str]]:
        ancestors: dict[str, frozenset[str]] = {}
        waiting = {component.name: component for component in self.components}
        while waiting:
            ready = [component for component in waiting.values() if ancestors.keys() >= set(component.after)]
            if not ready:
                raise InvalidInputError(
                    "components",
                    f"{_listed(sorted(waiting))} depend on each other in a cycle: remove one of them from `after`",
                )
            for component in ready:
                direct = frozenset(component.after)
                ancestors[component.name] = direct.union(*(ancestors[before] for before in direct))
                del waiting[component.name]
        return ancestors

    def _check_options(self) -> None:
        for option in self.options:
            where = f"options.{option.name}"
            if not option.components:
                raise InvalidInputError(
                    f"{where}.components", f"must not be empty: give at least one of {_listed(self._after)}"
                )
            _require_unique(f"{where}.components", option.components)
            for name in option.components:
                if name not in self._after:
                    raise InvalidInputError(
                        f"{where}.components",
                        f"{name!r} is not a component of the model: use one of {_listed(self._after)}",
                    )
            if option.gpus < 1:
                raise InvalidInputError(f"{where}.gpus", f"must be at least 1, not {option.gpus}")

    def _check_paths(self) -> None:
        for index, path in enumerate(self.paths):
            if not path.options:
                raise InvalidInputError(
                    f"paths.{index}", f"has no options: give at least one of {_listed(self.option)}"
                )
            for name in path.options:
                if name not in self.option:
                    raise InvalidInputError(
                        f"paths.{index}", f"{name!r} is not an option of the model: use one of {_listed(self.option)}"
                    )


def _require_unique(where: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidInputError(where, f"{name!r} is given twice: remove one of them")
        seen.add(name)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "nothing"
