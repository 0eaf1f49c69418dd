"""Loads the planner's inputs (model, workload, profile, GPU types) and builds the planning problem from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.graph import ExecutorGraph
from cornserve_planner.model_document import ModelDocument
from cornserve_planner.models import shipped_model, shipped_models
from cornserve_planner.problem import PlanningProblem
from cornserve_planner.profile_conversion import convert_profile, memory_per_gpu
from cornserve_planner.profiles.gpus import GpuCatalog
from cornserve_planner.profiles.profile import ModelProfile, OptionProfile
from cornserve_planner.profiles.profile_matching import matching_entries, unused_entries
from cornserve_planner.profiles.sourced_value import SourcedValue, Tag
from cornserve_planner.throughput_conversion import ThroughputConversion
from cornserve_planner.workload.document import Workload, read_workload
from cornserve_planner.workload.shipped import shipped_workload


@dataclass(frozen=True, slots=True)
class PlanInputs:
    """
    Args:
        rates: the profile's rates that the conversion uses, each with its option.
        unused: entries of the profile that match no option of the model.
    """

    model: ModelDocument
    graph: ExecutorGraph
    workload: Workload
    conversion: ThroughputConversion
    problem: PlanningProblem
    rates: tuple[tuple[str, SourcedValue], ...]
    unused: tuple[OptionProfile, ...]

    @property
    def tags(self) -> Counter[Tag]:
        """The number of rates with each tag."""
        return Counter(rate.tag for _, rate in self.rates)


def load_inputs(
    model: str,
    workload: Path | None = None,
    profile: Path | None = None,
    gpus: Path | None = None,
    factors: Mapping[str, float] | None = None,
) -> PlanInputs:
    """Reads the given files, and shipped files for the other inputs.

    Args:
        model: the name of a shipped model, or a file.
        factors: colocation factors that replace the profile's throughputs of these options.

    Raises `InvalidInputError` naming file, field and reason.
    """
    document = shipped_model(model) if model in shipped_models() else _read_model(model)
    if profile is None:
        model_profile = ModelProfile.shipped(document.name).restricted_to(document.options)
    else:
        model_profile = ModelProfile.read(profile)
    return build_inputs(
        document,
        shipped_workload(document) if workload is None else read_workload(workload, document.modalities),
        model_profile,
        GpuCatalog.shipped() if gpus is None else GpuCatalog.read(gpus),
        factors,
    )


def build_inputs(
    model: ModelDocument,
    workload: Workload,
    profile: ModelProfile,
    gpus: GpuCatalog,
    factors: Mapping[str, float] | None = None,
) -> PlanInputs:
    """Builds the planning problem. Raises `InvalidInputError` if the inputs do not fit together."""
    if profile.model != model.name:
        raise InvalidInputError(
            "model",
            f"the profile is for {profile.model!r}, but the model is {model.name!r}: give a profile of this model",
        )
    graph = model.graph()
    used = {option.gpu for option in graph.options}
    types = [gpu for gpu in gpus.types() if gpu.name in used]
    for option in graph.options:
        if option.gpu is not None and option.gpu not in gpus.gpus:
            raise InvalidInputError(
                f"options.{option.name}.gpu",
                f"unknown GPU type {option.gpu!r}: use one of {', '.join(gpus.gpus)}, or describe it in a file for "
                "--gpu-types",
            )
    try:
        conversion = convert_profile(graph, profile, workload, factors)
    except InvalidInputError as error:
        raise error.within(f"profile of {profile.model}") from error
    problem = PlanningProblem.from_graph(graph, workload.shares, conversion, types, memory_per_gpu(graph, profile))
    rates = tuple(
        (option.name, throughput.rate)
        for option in graph.options
        for entry in matching_entries(option, profile)
        for throughput in entry.throughput
        if option.name not in (factors or {})
    )
    return PlanInputs(model, graph, workload, conversion, problem, rates, unused_entries(graph, profile))


def _read_model(model: str) -> ModelDocument:
    if not Path(model).suffix:
        known = ", ".join(shipped_models())
        raise InvalidInputError("model", f"unknown model {model!r}: use one of {known}, or a file such as model.yaml")
    return ModelDocument.read(Path(model))
