"""Loads the planner's inputs (model, workload, profile, GPU types) and builds the planning problem from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from cornserve_planner.conversion.profile_conversion import convert_profile, memory_per_gpu, profile_measurements
from cornserve_planner.conversion.size_costs import Draws
from cornserve_planner.conversion.throughput_conversion import ConvertedTime, ThroughputConversion
from cornserve_planner.errors import InvalidInputError
from cornserve_planner.inputs.option_batches import OptionBatches, profile_batches
from cornserve_planner.inputs.rare_types import unmeasured_types, with_rare_types
from cornserve_planner.model.document import ModelDocument
from cornserve_planner.model.graph import ExecutorGraph, PathStep, RequestType
from cornserve_planner.model.problem import PlanningProblem
from cornserve_planner.model.shipped import shipped_model, shipped_models, unknown_model
from cornserve_planner.profiles.gpus import GpuCatalog
from cornserve_planner.profiles.profile import ModelProfile, OptionProfile
from cornserve_planner.profiles.profile_matching import check_profile, matching_entries, unused_entries
from cornserve_planner.profiles.sourced_value import SourcedValue, Tag
from cornserve_planner.workload.document import Workload, read_workload
from cornserve_planner.workload.shipped import shipped_workload

SUFFIXES = (".json", ".yaml", ".yml")
"""Suffixes of files that describe a model."""


@dataclass(frozen=True, slots=True)
class PlanInputs:
    """
    Args:
        workload: also has the other request types that the model must serve, with small shares, and that it can serve,
            with share 0.
        rates: the profile's rates that the conversion uses, each with its option.
        startup: by option, the seconds until a replica accepts requests, if known.
        batches: by option, the batch sizes that its profile has.
        batch: by option, the chosen batch size. `slowdown`: its seconds per request relative to the fastest one.
        robust: whether the problem has the longest seconds of the confidence intervals.
        unused: entries of the profile that match no option of the model.
        unmeasured: the types that the model must serve without a path, with the components whose times are unknown.
    """

    model: ModelDocument
    graph: ExecutorGraph
    profile: ModelProfile
    workload: Workload
    conversion: ThroughputConversion
    problem: PlanningProblem
    rates: tuple[tuple[str, SourcedValue], ...]
    startup: Mapping[str, float]
    unused: tuple[OptionProfile, ...]
    batches: Mapping[str, OptionBatches] = field(default_factory=dict)
    batch: Mapping[str, int] = field(default_factory=dict)
    slowdown: Mapping[str, float] = field(default_factory=dict)
    robust: bool = False
    unmeasured: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def types(self) -> Iterable[RequestType]:
        """The request types, including those with share 0."""
        return self.workload.shares

    def time(self, kind: RequestType, step: PathStep) -> ConvertedTime:
        """Returns the seconds that the plan assumes for a step, with their confidence interval."""
        time, slowdown = self.conversion.time(kind, step), self.slowdown.get(step.option, 1.0)
        return ConvertedTime(
            (time.high if self.robust else time.seconds) * slowdown,
            time.low * slowdown,
            time.high * slowdown,
            time.tag,
            time.source,
        )

    def drawn(self, kind: RequestType, step: PathStep) -> Draws:
        """Returns the estimated seconds of a step, followed by random draws."""
        return self.conversion.drawn(kind, step) * self.slowdown.get(step.option, 1.0)

    @property
    def tags(self) -> Counter[Tag]:
        """The number of rates with each tag."""
        return Counter(rate.tag for _, rate in self.rates)


def load_inputs(
    model: str | ModelDocument,
    workload: Path | None = None,
    profile: Path | None = None,
    gpus: Path | None = None,
    factors: Mapping[str, float] | None = None,
) -> PlanInputs:
    """Reads the given files, and shipped files for the other inputs.

    Args:
        model: the name of a shipped model, a file, or a document.
        factors: colocation factors that replace the profile's throughputs of these options.

    Raises `InvalidInputError` naming file, field and reason.
    """
    document = model if isinstance(model, ModelDocument) else _read_model(model)
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
    check_profile(model, profile)
    graph = model.graph()
    profiled = profile_measurements(graph, profile)[1].types.values()
    measured = frozenset().union(*(kind.components for kind in (*profiled, *workload.shares)))
    shares = with_rare_types(graph, workload.shares, model.types, model.modalities, measured)
    workload = replace(workload, shares=shares)
    used = {option.gpu for option in graph.options}
    types = [gpu for gpu in gpus.types() if gpu.name in used]
    check_gpu_types(graph, gpus)
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
    startup = {
        option.name: entry.startup.value
        for option in graph.options
        for entry in matching_entries(option, profile)
        if entry.startup is not None
    }
    return PlanInputs(
        model, graph, profile, workload, conversion, problem, rates, startup, unused_entries(graph, profile),
        batches=profile_batches(graph, profile), unmeasured=unmeasured_types(model.types, measured),
    )  # fmt: skip


def check_gpu_types(graph: ExecutorGraph, gpus: GpuCatalog) -> None:
    """Raises `InvalidInputError` for a type of GPU whose memory and price are unknown."""
    for option in graph.options:
        if option.gpu is not None and option.gpu not in gpus.gpus:
            raise InvalidInputError(
                f"options.{option.name}.gpu",
                f"unknown GPU type {option.gpu!r}: use one of {', '.join(gpus.gpus)}, or describe it in a file for "
                "--gpu-types",
            )


def _read_model(model: str) -> ModelDocument:
    if model in shipped_models():
        return shipped_model(model)
    path = Path(model)
    if path.suffix not in SUFFIXES and not path.exists():
        raise unknown_model(model)
    return ModelDocument.read(path)
