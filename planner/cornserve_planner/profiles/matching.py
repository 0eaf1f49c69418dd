"""Whether a profile is about a model: a name that is mistyped in one of them would otherwise only change the plan."""

from __future__ import annotations

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.graph import DeploymentOption, ExecutorGraph
from cornserve_planner.profiles.profile import OptionProfile, Profile


def check_names(graph: ExecutorGraph, profile: Profile) -> None:
    """Raises `InvalidInputError` for an option or a component of the profile that the model does not have."""
    components = [component.name for component in graph.components]
    for place, entry in enumerate(profile.options):
        if entry.option not in graph.option:
            raise _unknown(f"options.{place}.option", entry.option, "option", list(graph.option))
        for number, throughput in enumerate(entry.throughput):
            for part, kind in enumerate(throughput.mix):
                for name in kind.components:
                    if name not in components:
                        where = f"options.{place}.throughput.{number}.mix.{part}.components"
                        raise _unknown(where, name, "component", components)


def entries_of(option: DeploymentOption, profile: Profile) -> tuple[OptionProfile, ...]:
    """On as many GPUs, and of the type, as the option has them.

    Raises `InvalidInputError` if the option may have any type and the profile knows several.
    """
    found = tuple(entry for entry in profile.of(option.name, option.gpu) if entry.gpus == option.gpus)
    if len(found) > 1:
        known = ", ".join(entry.gpu for entry in found)
        raise InvalidInputError(
            f"options.{option.name}.gpu", f"is left open by the model, and the profile knows it on {known}: choose one"
        )
    return found


def unused(graph: ExecutorGraph, profile: Profile) -> tuple[OptionProfile, ...]:
    """What the profile knows of options on other GPUs, or other numbers of them, than the model has them on."""
    used = {id(entry) for option in graph.options for entry in entries_of(option, profile)}
    return tuple(entry for entry in profile.options if id(entry) not in used)


def _unknown(where: str, name: str, what: str, known: list[str]) -> InvalidInputError:
    return InvalidInputError(where, f"{name!r} is no {what} of the model, which has {', '.join(known)}")
