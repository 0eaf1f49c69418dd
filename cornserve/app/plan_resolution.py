"""Resolves a plan for an app: its options are executors of the app, its paths those of the app."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from cornserve.app.graph import AppGraph, GraphStep
from cornserve.app.plan import AppPlan
from cornserve.app.route_plan import RouteCell, RoutePlan
from cornserve.task.component_parts import wholes
from cornserve.task.errors import DefinitionError
from cornserve_plan.fields import Binding
from cornserve_plan.plan import PlanCell, PlanOption, PlanPath, PlanStep

ADVICE = "make a plan of this app with `cornserve plan from APP`"

MAX_ROUTE_PLAN_BYTES = 128 * 1024
"""Maximum size of the routing of a plan as JSON."""

Number = TypeVar("Number", int, float)

_Step = tuple[str, frozenset[str]]
"""The key of an executor, and the components that it runs, of which it may run parts."""


def resolve_plan(plan: AppPlan, graph: AppGraph | None) -> RoutePlan:
    """Returns the routing of the plan's running cells, without executor groups.

    Raises `DefinitionError` if an option, a type or a path is not one of the app, or if the app has no graph.
    """
    if graph is None:
        raise DefinitionError(
            "plan: the app has no request types: pass App(…, probes=[…]) with one request of each type"
        )
    executors = {name: _executor(name, option, graph) for name, option in plan.options.items()}
    _check_shared_executors(plan, executors)
    types = {name: _graph_type(name, kind.components, graph) for name, kind in plan.types.items()}
    _check_distinct(types)
    cells = [
        RouteCell(
            name=name,
            rate=cell.rate,
            replicas=by_executor(cell.replicas, executors),
            groups={},
            probabilities=_probabilities(plan, cell, executors, types, graph),
        )
        for name, cell in plan.running_cells
    ]
    _check_served(types, plan.default_type, cells, graph)
    resolved = RoutePlan(
        types={name: sorted(wholes(graph.types[kind])) for name, kind in types.items()},
        default_type=plan.default_type,
        cells=cells,
        executors=executors,
        bindings=_bindings(plan, executors, types, graph),
    )
    size = len(resolved.model_dump_json().encode())
    if size > MAX_ROUTE_PLAN_BYTES:
        raise DefinitionError(
            f"plan: the routing of its {len(cells)} cells, {len(types)} types and {len(graph.paths)} paths has {size} "
            f"bytes: at most {MAX_ROUTE_PLAN_BYTES} are allowed, run fewer and larger cells"
        )
    return resolved


def by_executor(numbers: Mapping[str, Number], executors: Mapping[str, str]) -> dict[str, Number]:
    """Returns the sums of numbers of options, by the key of the executor."""
    sums: dict[str, Number] = {}
    for option, number in numbers.items():
        key = executors[option]
        sums[key] = sums[key] + number if key in sums else number
    return sums


def _executor(name: str, option: PlanOption, graph: AppGraph) -> str:
    same_task = [found for found in graph.options.values() if found.task == option.task]
    found = next((found for found in same_task if found.settings == option.settings), None)
    if found is None:
        others = ", ".join(f"{other.task} {_difference(option, other.settings)}" for other in same_task)
        known = others or f"unit tasks {', '.join(sorted({found.task for found in graph.options.values()}))}"
        raise DefinitionError(
            f"plan: option {name!r} is {option.task} with settings that no executor of the app has; the app has "
            f"{known}: {ADVICE}"
        )
    if found.gpus and option.gpus != found.gpus:
        raise DefinitionError(
            f"plan: option {name!r} has {option.gpus} GPUs, but the app's executor {found.gpus}: {ADVICE}"
        )
    return found.executor


def _difference(option: PlanOption, settings: Mapping[str, object]) -> str:
    """Returns the settings that differ, such as `model_id='b' (plan: 'a')`."""
    names = sorted(option.settings.keys() | settings.keys())
    different = [
        f"{name}={settings.get(name)!r} (plan: {option.settings.get(name)!r})"
        for name in names
        if option.settings.get(name) != settings.get(name)
    ]
    return f"with {', '.join(different)}"[:300]


def _check_shared_executors(plan: AppPlan, executors: dict[str, str]) -> None:
    """Checks that options with the same executor need the same type of GPU: they share replicas."""
    first: dict[str, str] = {}
    for name, key in executors.items():
        other = first.setdefault(key, name)
        if plan.options[other].gpu_type != plan.options[name].gpu_type:
            raise DefinitionError(
                f"plan: options {other!r} and {name!r} have the same executor on different types of GPUs: "
                "use one type, or different settings"
            )


def _graph_type(name: str, components: Collection[str], graph: AppGraph) -> str:
    try:
        return graph.type_of(components)
    except KeyError:
        raise DefinitionError(
            f"plan: type {name!r} needs {', '.join(components)}, but no request of the app does: its types are "
            f"{', '.join(graph.types)}: {ADVICE}"
        ) from None


def _check_distinct(types: Mapping[str, str]) -> None:
    """Checks that dry records distinguish the types."""
    first: dict[str, str] = {}
    for name, kind in types.items():
        other = first.setdefault(kind, name)
        if other != name:
            raise DefinitionError(
                f"plan: types {other!r} and {name!r} differ only in components that run after a value has arrived: "
                "make them one type of the workload, with their `frequency`"
            )


def _probabilities(
    plan: AppPlan, cell: PlanCell, executors: dict[str, str], types: dict[str, str], graph: AppGraph
) -> dict[str, list[float]]:
    """Returns the probability of each path of the app, by type."""
    found = {name: [0.0] * len(graph.paths) for name in cell.probabilities}
    for name, probabilities in cell.probabilities.items():
        for number, (path, probability) in enumerate(zip(plan.types[name].paths, probabilities, strict=True)):
            if probability:
                index = _path_index(name, number, path, executors, types[name], graph)
                found[name][index] = min(found[name][index] + probability, 1.0)
    return found


def _bindings(
    plan: AppPlan, executors: dict[str, str], types: dict[str, str], graph: AppGraph
) -> dict[str, list[dict[str, Binding]]]:
    """Returns the bindings of steps by executor for each path of the app. A type without bindings is absent."""
    found: dict[str, list[dict[str, Binding]]] = {}
    for name, kind in plan.types.items():
        for number, path in enumerate(kind.paths):
            if steps := {executors[step.option]: step.binding for step in path.steps if step.binding is not None}:
                index = _path_index(name, number, path, executors, types[name], graph)
                found.setdefault(name, [{} for _ in graph.paths])[index].update(steps)
    return found


def _check_served(types: Mapping[str, str], default_type: str, cells: Sequence[RouteCell], graph: AppGraph) -> None:
    """Checks that the running cells serve each type of the app: by its paths, or by those of the default type."""
    served = {kind for name, kind in types.items() if any(name in cell.probabilities for cell in cells)}
    for kind in sorted(graph.types.keys() - served):
        for cell in cells:
            for path, probability in zip(graph.paths, cell.probabilities.get(default_type, ()), strict=False):
                options = {step.option for step in path.steps.get(kind, ())} if probability else set()
                if any(graph.options[option].executor not in cell.replicas for option in options):
                    raise DefinitionError(
                        f"plan: no path serves requests of the type {kind!r}, which the app takes: add the type to the "
                        "workload, with a small share if such requests are rare, and make the plan again"
                    )


def _path_index(
    name: str, number: int, path: PlanPath, executors: dict[str, str], graph_type: str, graph: AppGraph
) -> int:
    needed = _steps(path.steps, executors)
    keys = {option: entry.executor for option, entry in graph.options.items()}
    for index, known in enumerate(graph.paths):
        if graph_type in known.steps:
            early = _steps(known.steps[graph_type], keys)
            if early <= needed <= early + _steps(known.conditional, keys):
                return index
    text = " → ".join(f"{step.option} ({', '.join(step.components)})" for step in path.steps)
    raise DefinitionError(
        f"plan: no path of the app serves type {name!r} by {text}, path {number} of the plan: {ADVICE}"
    )


def _steps(steps: Iterable[PlanStep | GraphStep], executors: dict[str, str]) -> Counter[_Step]:
    """Returns the steps without their order: independent steps have no fixed order."""
    return Counter((executors[step.option], wholes(step.components)) for step in steps)
