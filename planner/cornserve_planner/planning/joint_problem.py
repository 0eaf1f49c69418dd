"""Joins the problems of several models into one, in which options with equal executors serve all of their models."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass

from pydantic_core import to_json

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.plan_file.build import PlannedParts
from cornserve_planner.plan_file.parts import (
    PlannedComponent,
    PlannedModalities,
    PlannedModel,
    PlannedOption,
    PlannedType,
)

LONGEST_NAME = 100
"""Characters of a joint name."""

OptionNames = Mapping[str, Mapping[str, str]]
"""Names of options in the joint problem, by model and own name."""


@dataclass(frozen=True, slots=True)
class JointProblem:
    parts: PlannedParts
    names: OptionNames


def joint_name(model: str, name: str) -> str:
    """Returns the name of a component or request type in the joint problem."""
    return _checked(f"{model}: {name}")


def join_problems(models: Mapping[str, PlannedParts], rates: Mapping[str, float]) -> JointProblem:
    """Joins problems that use the same GPU types.

    Args:
        models: the parts of each model's problem, by its name.
        rates: requests per second of each model. The shares of its types are divided in proportion.

    Raises `InvalidInputError` if a name becomes too long.
    """
    groups: dict[Hashable, list[tuple[str, str]]] = {}
    for model, parts in models.items():
        for key, name in zip(_executor_keys(model, parts.options), parts.options, strict=True):
            groups.setdefault(key, []).append((model, name))
    names: dict[str, dict[str, str]] = {model: {} for model in models}
    options = {}
    for members in groups.values():
        joined = _checked(" + ".join(f"{model}: {name}" for model, name in members))
        options[joined] = _shared_option({model: models[model].options[name] for model, name in members})
        for model, name in members:
            names[model][name] = joined
    total = math.fsum(rates.values())
    parts = PlannedParts(
        models={model: _model(model, parts.models[model]) for model, parts in models.items()},
        components={
            joint_name(model, name): PlannedComponent(after=_prefixed(model, component.after))
            for model, parts in models.items()
            for name, component in parts.components.items()
        },
        gpu_types={name: gpu for parts in models.values() for name, gpu in parts.gpu_types.items()},
        options=options,
        types={
            joint_name(model, name): _type(model, kind, names[model], rates[model] / total)
            for model, parts in models.items()
            for name, kind in parts.types.items()
        },
    )
    return JointProblem(parts, names)


def _executor_keys(model: str, options: Mapping[str, PlannedOption]) -> Iterable[Hashable]:
    """Yields a key for each option that equals those of other models' options with the same executor.

    Options of one model are never joined.
    """
    seen = Counter[Hashable]()
    for name, option in options.items():
        if option.task is None:
            yield model, name
        else:
            key = (option.task, to_json(option.settings), option.gpu_type, option.gpus, option.batch)
            seen[key] += 1
            yield *key, seen[key]


def _shared_option(members: Mapping[str, PlannedOption]) -> PlannedOption:
    """Returns the option that runs the components of all models. Its limits are the strictest ones."""
    options = list(members.values())
    components = (name for model, option in members.items() for name in _prefixed(model, option.components))
    return options[0].model_copy(
        update={
            "components": tuple(components),
            "memory": max((option.memory for option in options if option.memory is not None), default=None),
            "max_utilization": min(option.max_utilization for option in options),
            "startup": max((option.startup for option in options if option.startup is not None), default=None),
        }
    )


def _model(model: str, planned: PlannedModel) -> PlannedModel:
    known = planned.modalities
    if known is None:
        return planned
    modalities = PlannedModalities(
        always=_prefixed(model, known.always),
        inputs={name: _prefixed(model, components) for name, components in known.inputs.items()},
        outputs={name: _prefixed(model, components) for name, components in known.outputs.items()},
    )
    return planned.model_copy(update={"modalities": modalities})


def _type(model: str, kind: PlannedType, options: Mapping[str, str], part: float) -> PlannedType:
    paths = tuple(
        path.model_copy(
            update={
                "steps": tuple(
                    step.model_copy(
                        update={"option": options[step.option], "components": _prefixed(model, step.components)}
                    )
                    for step in path.steps
                )
            }
        )
        for path in kind.paths
    )
    update = {"components": _prefixed(model, kind.components), "share": kind.share * part, "paths": paths}
    return kind.model_copy(update=update)


def _prefixed(model: str, names: Iterable[str]) -> tuple[str, ...]:
    return tuple(joint_name(model, name) for name in names)


def _checked(name: str) -> str:
    if len(name) > LONGEST_NAME:
        raise InvalidInputError(
            "--model-rate", f"{name!r} is longer than {LONGEST_NAME} characters: shorten the names in the model files"
        )
    return name
