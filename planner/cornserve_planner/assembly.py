"""From what users write (a model, a workload, a profile) to the problem that is solved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cornserve_planner import profiled
from cornserve_planner.conversion import Conversion
from cornserve_planner.errors import InvalidInputError
from cornserve_planner.graph import ExecutorGraph
from cornserve_planner.model import ModelDocument
from cornserve_planner.models import shipped_model, shipped_models
from cornserve_planner.problem import Problem
from cornserve_planner.profiles.figure import Figure, Tag
from cornserve_planner.profiles.gpus import Gpus
from cornserve_planner.profiles.matching import entries_of, unused
from cornserve_planner.profiles.profile import OptionProfile, Profile
from cornserve_planner.workload.document import Workload, read_workload
from cornserve_planner.workload.shipped import shipped_workload


@dataclass(frozen=True, slots=True)
class Assembly:
    """What there is to plan.

    Args:
        rates: of the profile that are used, by option.
        unused: what the profile knows beyond.
    """

    model: ModelDocument
    graph: ExecutorGraph
    workload: Workload
    conversion: Conversion
    problem: Problem
    rates: tuple[tuple[str, Figure], ...]
    unused: tuple[OptionProfile, ...]

    @property
    def tags(self) -> Counter[Tag]:
        """How many of the rates were come by in which way."""
        return Counter(rate.tag for _, rate in self.rates)


def assemble(
    model: str,
    workload: Path | None = None,
    profile: Path | None = None,
    gpus: Path | None = None,
    factors: Mapping[str, float] | None = None,
) -> Assembly:
    """Reads what is in files, and takes what is shipped for the rest.

    Args:
        model: the name of a shipped model, or a file.
        factors: colocation factors, in place of what the profile says of these options.

    Raises `InvalidInputError` naming file, field and reason.
    """
    document = shipped_model(model) if model in shipped_models() else _read_model(model)
    return build(
        document,
        shipped_workload(document) if workload is None else read_workload(workload, document.modalities),
        Profile.shipped(document.name).only(document.options) if profile is None else Profile.read(profile),
        Gpus.shipped() if gpus is None else Gpus.read(gpus),
        factors,
    )


def build(
    model: ModelDocument, workload: Workload, profile: Profile, gpus: Gpus, factors: Mapping[str, float] | None = None
) -> Assembly:
    """Raises `InvalidInputError` where the four do not go together."""
    if profile.model != model.name:
        raise InvalidInputError("model", f"the profile is of {profile.model!r}, and the model is {model.name!r}")
    graph = model.graph()
    used = {option.gpu for option in graph.options}
    types = [gpu for gpu in gpus.types() if gpu.name in used]
    for option in graph.options:
        if option.gpu is not None and option.gpu not in gpus.gpus:
            raise InvalidInputError(
                f"options.{option.name}.gpu",
                f"memory and price of {option.gpu!r} are not known, only of {', '.join(gpus.gpus)}; "
                "--gpu-types takes a file with others",
            )
    try:
        conversion = profiled.conversion(graph, profile, workload, factors)
    except InvalidInputError as error:
        raise error.within(f"profile of {profile.model}") from error
    problem = Problem.of(graph, workload.shares, conversion, types, profiled.memory(graph, profile))
    rates = tuple(
        (option.name, throughput.rate)
        for option in graph.options
        for entry in entries_of(option, profile)
        for throughput in entry.throughput
        if option.name not in (factors or {})
    )
    return Assembly(model, graph, workload, conversion, problem, rates, unused(graph, profile))


def _read_model(model: str) -> ModelDocument:
    if not Path(model).suffix:
        known = ", ".join(shipped_models())
        raise InvalidInputError("model", f"{model!r} is not known; known are {known}, and files: model.yaml")
    return ModelDocument.read(Path(model))
