"""Matches a profile with a model. Without this check, a misspelled name would silently change the plan."""

from __future__ import annotations

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.model.document import ExecutorTask, ModelDocument
from cornserve_planner.model.graph import DeploymentOption, ExecutorGraph
from cornserve_planner.profiles.profile import ModelProfile, OptionProfile


def check_names(graph: ExecutorGraph, profile: ModelProfile) -> None:
    """Raises `InvalidInputError` for an option or a component of the profile that the model does not have."""
    options = list(dict.fromkeys(option.profiled_as for option in graph.options))
    components = [component.name for component in graph.components]
    for index, entry in enumerate(profile.options):
        if entry.option not in options:
            raise _unknown(f"options.{index}.option", entry.option, "option", options)
        for number, throughput in enumerate(entry.throughput):
            for part, kind in enumerate(throughput.mix):
                for name in kind.components:
                    if name not in components:
                        where = f"options.{index}.throughput.{number}.mix.{part}.components"
                        raise _unknown(where, name, "component", components)


def check_executors(model: ModelDocument, profile: ModelProfile) -> None:
    """Raises `InvalidInputError` for an entry that was measured with another executor than the model's option has."""
    for index, entry in enumerate(profile.options):
        option = model.options.get(entry.option)
        if option is None or option.executor is None or entry.executor is None or option.executor == entry.executor:
            continue
        raise InvalidInputError(
            f"options.{index}.executor",
            f"{entry.option} was measured as {_described(entry.executor)}, but {model.name} has "
            f"{_described(option.executor)}: measure it again with `cornserve profile`",
        )


def _described(executor: ExecutorTask) -> str:
    return f"{executor.task}({', '.join(f'{name}={value!r}' for name, value in executor.settings.items())})"


def matching_entries(option: DeploymentOption, profile: ModelProfile) -> tuple[OptionProfile, ...]:
    """Returns the entries with the GPU type and the number of GPUs of the option.

    Raises `InvalidInputError` if the option allows any type and the profile has entries for several types.
    """
    found = tuple(entry for entry in profile.for_option(option.profiled_as, option.gpu) if entry.gpus == option.gpus)
    if len(found) > 1:
        known = ", ".join(entry.gpu for entry in found)
        raise InvalidInputError(
            f"options.{option.name}.gpu",
            f"is not set in the model, and the profile has entries for {known}: choose one",
        )
    return found


def check_profile(model: ModelDocument, profile: ModelProfile) -> None:
    """Raises `InvalidInputError` if the profile is one of another model, of other options or of other executors."""
    if profile.model != model.name:
        raise InvalidInputError(
            "model",
            f"the profile is for {profile.model!r}, but the model is {model.name!r}: give a profile of this model",
        )
    try:
        check_executors(model, profile)
        check_names(model.graph(), profile)
    except InvalidInputError as error:
        raise error.within(f"profile of {profile.model}") from error


def missing_options(graph: ExecutorGraph, profile: ModelProfile) -> list[str]:
    """Returns the options without a throughput on their GPU type with their number of GPUs."""
    missing = (
        option.profiled_as
        for option in graph.options
        if not any(entry.throughput for entry in matching_entries(option, profile))
    )
    return list(dict.fromkeys(missing))


def unused_entries(graph: ExecutorGraph, profile: ModelProfile) -> tuple[OptionProfile, ...]:
    """Returns the entries that match no option of the model, because of other GPU types or numbers of GPUs."""
    used = {id(entry) for option in graph.options for entry in matching_entries(option, profile)}
    return tuple(entry for entry in profile.options if id(entry) not in used)


def _unknown(where: str, name: str, what: str, known: list[str]) -> InvalidInputError:
    return InvalidInputError(where, f"unknown {what} {name!r}: use one of {', '.join(known)}")
