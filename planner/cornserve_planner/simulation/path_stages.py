"""The steps of a plan's paths as the stages of a simulated request, with the edges between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cornserve_plan.fields import Binding
from cornserve_planner.plan_file.document import PlanFile
from cornserve_planner.plan_file.parts import PlannedCell, PlannedPath
from cornserve_planner.simulation.executor_model import CurveExecutor, ExecutorModel, TokenExecutor


@dataclass(frozen=True, slots=True)
class PathStage:
    """A step of a path, for requests of a type.

    Args:
        executor: the executor that runs the option.
        work: seconds of a replica's time, relative to the mean request of the executor.
        role: the part of a language model that it runs, or an empty text.
        consumers: the indices of the steps that consume its output, and whether they stream it.
        inputs: the number of steps whose output it consumes.
        has_one_input: whether it consumes the whole output of one step, and no stream.
        binding: that of the plan's step; None for that of the settings.
        takes_text: whether its input contains the text of the request.
        encoding: the tokens of a prompt that take as long as encoding a token of media; 0 without encoder.
    """

    option: str
    executor: str
    work: float
    role: str
    consumers: tuple[tuple[int, bool], ...]
    inputs: int
    has_one_input: bool
    binding: Binding | None
    takes_text: bool
    encoding: float


def shared_executors(plan: PlanFile) -> dict[str, str]:
    """Returns the executor of each option, named after the first option with its task and settings."""
    executors: dict[str, str] = {}
    for name, option in plan.options.items():
        same = (
            other
            for other in executors
            if option.task is not None
            and (plan.options[other].task, plan.options[other].settings) == (option.task, option.settings)
        )
        executors[name] = executors[first] if (first := next(same, None)) is not None else name
    return executors


def replicas_by_executor(cell: PlannedCell, executors: Mapping[str, str]) -> dict[str, int]:
    """Returns the replicas of each executor in a cell."""
    replicas: dict[str, int] = {}
    for option, count in cell.replicas.items():
        name = executors[option]
        replicas[name] = replicas.get(name, 0) + count
    return replicas


def path_stages(
    plan: PlanFile,
    components: Iterable[str],
    path: PlannedPath,
    models: Mapping[str, ExecutorModel],
    executors: Mapping[str, str],
    streamed: frozenset[str],
) -> list[PathStage]:
    """Returns the steps of a path with their edges: a step consumes the outputs of the components before its own.

    Args:
        components: those of the request type.
        executors: the executor of each option, as `shared_executors` returns them.
        streamed: components that begin with the first output of the components before them.
    """
    modalities = next(iter(plan.models.values())).modalities
    encoders = (
        {name for names in modalities.inputs.values() for name in names} - {*modalities.always} if modalities else set()
    )
    needed = frozenset(components)
    step_of = {component: index for index, step in enumerate(path.steps) for component in step.components}
    edges: dict[tuple[int, int], bool] = {}
    for component, consumer in step_of.items():
        for before in _producers(plan, component, needed):
            edge = step_of[before], consumer
            if edge[0] != edge[1]:
                edges[edge] = edges.get(edge, True) and component in streamed
    return [
        PathStage(
            option=step.option,
            executor=executors[step.option],
            work=_work(models[executors[step.option]], step.seconds),
            role="" if encoders.issuperset(step.components) else _role(step.components, models[executors[step.option]]),
            consumers=tuple(
                (end, is_streamed) for (start, end), is_streamed in sorted(edges.items()) if start == index
            ),
            inputs=sum(end == index for _, end in edges),
            has_one_input=[is_streamed for (_, end), is_streamed in edges.items() if end == index] == [False],
            binding=step.binding,
            takes_text=not encoders.issuperset(step.components),
            encoding=0.0 if encoders.isdisjoint(step.components) else _encoding(models[executors[step.option]]),
        )
        for index, step in enumerate(path.steps)
    ]


def _producers(plan: PlanFile, component: str, needed: frozenset[str]) -> frozenset[str]:
    """Returns the components of the request whose output a component consumes, also through components it skips."""
    found: set[str] = set()
    for before in plan.components[component].after:
        found |= {before} if before in needed else _producers(plan, before, needed)
    return frozenset(found)


def _role(components: Iterable[str], model: ExecutorModel) -> str:
    """Returns the part of a language model that a step runs, or an empty text. A step model is that of a whole one."""
    named = {"prefill", "decode"}.intersection(components)
    if len(named) == 1:
        return named.pop()
    return "llm" if named or "llm" in components or isinstance(model, TokenExecutor) else ""


def _work(model: ExecutorModel, seconds: float) -> float:
    return seconds / model.seconds_per_request if isinstance(model, CurveExecutor) else 1.0


def _encoding(model: ExecutorModel) -> float:
    return model.encoding if isinstance(model, TokenExecutor) else 0.0
