"""Role mixes of a multimodal model on 8 GPUs: all 35 by replay, compared with the heuristic and the search [T §5.5]."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from cornserve_planner.goodput.candidates import PlanCandidate, heuristic_mix, role_mixes, role_structures
from cornserve_planner.goodput.search import GoodputSearch, describe
from cornserve_planner.inputs.planning_inputs import load_inputs
from cornserve_planner.inputs.request_targets import GoodputTargets
from cornserve_planner.inputs.service_targets import ServiceTargets, with_targets
from cornserve_planner.plan_file.provenance import plan_origin
from cornserve_planner.planning.goodput_plan import ReplayedProblem
from cornserve_planner.planning.request import PlanRequest
from cornserve_planner.simulation.measurements import SimulationMeasurements
from cornserve_planner.simulation.serving import ServingSimulation
from cornserve_planner.simulation.serving_settings import ServingSettings
from cornserve_planner.simulation.simulated_request import SimulatedRequest
from cornserve_planner.solve.budget import Budget
from cornserve_planner.solve.capacity import capacity
from cornserve_policies.registry import DEFAULT_ROUTING, routing_policy

GPUS = 8

EVEN = [2, 3, 3]
"""The replicas of three roles with about equally many."""

OPTIONS = ("E", "P", "D", "EP", "ED", "EPD")

MODEL = """
format: cornserve-planner/model
version: 1
name: roles
components: {encoder: {}, prefill: {after: [encoder]}, decode: {after: [prefill]}}
modalities: {always: [prefill, decode], inputs: {image: [encoder]}}
options:
  E: {components: [encoder], gpu: A100-80GB}
  P: {components: [prefill], gpu: A100-80GB}
  D: {components: [decode], gpu: A100-80GB}
  EP: {components: [encoder, prefill], gpu: A100-80GB}
  ED: {components: [encoder, decode], gpu: A100-80GB}
  EPD: {components: [encoder, prefill, decode], gpu: A100-80GB}
paths: [[E, P, D], [EP, D], [ED, P, ED], [EPD]]
"""

STEP = (
    "{fixed: 0.004, weights: 0.0075, per_token: 5.0e-5, per_media_token: 4.0e-5, per_sequence: 2.0e-5,"
    " per_context_token: 7.0e-8, cache_tokens: 120000, tag: predicted, source: a benchmark}"
)
"""A model with 7 billion parameters on an A100: 52 µs per token by FLOPs, 7.5 ms to read its weights."""


@dataclass(frozen=True, slots=True)
class ImageWorkload:
    """Mean tokens of requests: `images` of 576 tokens each."""

    name: str
    text: int
    images: int
    output: int

    def document(self) -> str:
        return (
            "format: cornserve-planner/workload\nversion: 1\ntypes:\n  image: {components: [encoder, prefill, decode],"
            f" share: 1, sizes: {{text_tokens: {self.text}, image_tokens: {self.images * 576},"
            f" output_tokens: {self.output}}}}}\n"
        )


WORKLOADS = (
    ImageWorkload("captions", 40, 1, 40),
    ImageWorkload("questions", 60, 1, 10),
    ImageWorkload("chat", 300, 1, 250),
    ImageWorkload("several images", 100, 4, 100),
)

TARGETS = tuple((ttft, tbt) for ttft in (0.5, 1.0, 2.0) for tbt in (0.03, 0.06))
"""Seconds until the first token, and between two tokens."""


@dataclass(frozen=True, slots=True)
class MixRanks:
    """
    Args:
        mixes: the number of all mixes.
        heuristic, search: the rank of the chosen mix among all 35; 1 is best.
        best: the highest goodput. `even`: that of three roles with about equally many replicas.
        all_runs, search_runs: simulations of all mixes, and of the search.
    """

    workload: str
    ttft: float
    tbt: float
    mixes: int
    heuristic: int
    search: int
    best: float
    best_mix: str
    even: float
    all_runs: int
    search_runs: int


TIE = 1.03
"""Goodputs whose ratio is at most this are equal: each is known within 2 %."""


def write_inputs(folder: Path, workload: ImageWorkload) -> tuple[Path, Path, Path]:
    """Writes and returns the files of the model, the workload and the profile."""
    files = folder / "model.yaml", folder / "workload.yaml", folder / "profile.yaml"
    for file, text in zip(files, (MODEL, workload.document(), _profile()), strict=True):
        file.write_text(text)
    return files


@dataclass(frozen=True, slots=True)
class RoleProblem:
    """The mixes of a workload and targets.

    Args:
        structures: the options of each separation.
        candidates: all mixes, the highest bound first.
    """

    problem: ReplayedProblem
    structures: list[tuple[str, ...]]
    candidates: list[PlanCandidate]

    @classmethod
    def of(cls, folder: Path, workload: ImageWorkload, ttft: float, tbt: float, requests: int) -> RoleProblem:
        """Returns the problem with a number of requests, whose files are in a folder."""
        model, file, profile = write_inputs(folder, workload)
        targets = GoodputTargets({"ttft": {"": ttft}, "tbt": {"": tbt}}, 90.0)
        request = PlanRequest(str(model), GPUS, workload=file, profile=profile, targets=ServiceTargets(latency=targets))
        inputs = with_targets(load_inputs(request.model, file, request.profile), request.targets)
        origin = plan_origin(inputs, request.model, file, request.profile, None, factors={}, options={})
        problem = ReplayedProblem(request, inputs, None, origin, requests)
        structures = [options for options in role_structures(problem.fluid, inputs.graph) if len(options) > 1]
        candidates = [
            PlanCandidate("+".join(options), mix, capacity(problem.fluid, mix)[0])
            for options in structures
            for mix in role_mixes(problem.fluid, options, Budget(GPUS))
        ]
        return cls(problem, structures, sorted(candidates, key=lambda each: -each.bound))

    def mean_latencies(self, mix: Mapping[str, int], rate: float) -> tuple[float, float]:
        """Returns the mean time to the first token, and that between tokens, of a mix at a rate."""
        system = self.problem.system_of(next(each for each in self.candidates if each.replicas == mix))
        measurements = SimulationMeasurements()
        simulation = ServingSimulation(
            system.plan, system.models, routing_policy(DEFAULT_ROUTING), ServingSettings(), measurements
        )
        measurements.events = simulation.events
        simulation.run(
            SimulatedRequest(each.id, each.arrival / rate, each.kind, each.text, each.media, each.output)
            for each in self.problem.replay.requests
        )
        ((_, columns),) = measurements.latencies.items()
        return fmean(columns["ttft"].seconds), fmean(columns["tbt"].seconds)


def rank_mixes(folder: Path, workload: ImageWorkload, ttft: float, tbt: float, requests: int) -> MixRanks:
    """Ranks all mixes by their goodput with a number of requests. Mixes of equal goodput have the same rank."""
    roles = RoleProblem.of(folder, workload, ttft, tbt, requests)
    problem, candidates, replay = roles.problem, roles.candidates, roles.problem.replay
    goodputs = [replay.goodput(problem.system_of(each), each.bound, 0, requests) for each in candidates]
    all_runs, replay.runs = replay.runs, 0
    ranked = GoodputSearch(replay, problem.system_of).rank(candidates)
    chosen = max((each for each in ranked if not each[2]), key=lambda each: each[1])[0]
    mixes = [heuristic_mix(problem.fluid, options, Budget(GPUS)) for options in roles.structures]
    replicas = [each.replicas for each in candidates]
    best = max(goodputs)
    even = [number for number, mix in enumerate(replicas) if sorted(mix.values()) == EVEN]
    return MixRanks(
        workload.name,
        ttft,
        tbt,
        len(candidates),
        _rank(goodputs, max(goodputs[replicas.index(mix)] for mix in mixes)),
        _rank(goodputs, goodputs[replicas.index(chosen.replicas)]),
        best,
        describe(candidates[goodputs.index(best)]),
        max(goodputs[number] for number in even),
        all_runs,
        replay.runs,
    )


def _rank(goodputs: list[float], chosen: float) -> int:
    return 1 + sum(goodput > chosen * TIE for goodput in goodputs)


def _profile() -> str:
    """Returns the profile: the rates of full steps do not limit the mixes, which the step model does."""
    rate = "{value: 1000, unit: requests/s, tag: predicted, source: a benchmark}"
    options = "\n".join(
        f"- {{option: {name}, gpu: A100-80GB, throughput: [{{rate: {rate}}}], step: {STEP}}}" for name in OPTIONS
    )
    return f"format: cornserve-planner/profile\nversion: 1\nmodel: roles\noptions:\n{options}\n"
