"""Matches a profile with a model. Without this check, a misspelled name would silently change the plan."""

from __future__ import annotations

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.graph import DeploymentOption, ExecutorGraph
from cornserve_planner.profiles.profile import ModelProfile, OptionProfile


def check_names(graph: ExecutorGraph, profile: ModelProfile) -> None:
    """Raises `InvalidInputError` for an option or a component of the profile that the model does not have."""
    components = [component.name for component in graph.components]
    for index, entry in enumerate(profile.options):
        if entry.option not in graph.option:
            raise _unknown(f"options.{index}.option", entry.option, "option", list(graph.option))
        for number, throughput in enumerate(entry.throughput):
            for part, kind in enumerate(throughput.mix):
                for name in kind.components:
                    if name not in components:
                        where = f"options.{index}.throughput.{number}.mix.{part}.components"
                        raise _unknown(where, name, "component", components)


def matching_entries(option: DeploymentOption, profile: ModelProfile) -> tuple[OptionProfile, ...]:
    """Returns the entries with the GPU type and the number of GPUs of the option.

    Raises `InvalidInputError` if the option allows any type and the profile has entries for several types.
    """
    found = tuple(entry for entry in profile.for_option(option.name, option.gpu) if entry.gpus == option.gpus)
    if len(found) > 1:
        known = ", ".join(entry.gpu for entry in found)
        raise InvalidInputError(
            f"options.{option.name}.gpu",
            f"is not set in the model, and the profile has entries for {known}: choose one",
        )
    return found


def unused_entries(graph: ExecutorGraph, profile: ModelProfile) -> tuple[OptionProfile, ...]:
    """Returns the entries that match no option of the model, because of other GPU types or numbers of GPUs."""
    used = {id(entry) for option in graph.options for entry in matching_entries(option, profile)}
    return tuple(entry for entry in profile.options if id(entry) not in used)


def _unknown(where: str, name: str, what: str, known: list[str]) -> InvalidInputError:
    return InvalidInputError(where, f"unknown {what} {name!r}: use one of {', '.join(known)}")
