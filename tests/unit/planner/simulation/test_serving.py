"""The simulation of a plan: requests pass through gateways, cells of replicas and transfers."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.plan_file.document import PlanFile
from cornserve_planner.planning.model_plan import make_plan
from cornserve_planner.planning.request import PlanRequest
from cornserve_planner.profiles.profile import ModelProfile
from cornserve_planner.simulation.executor_model import executor_models
from cornserve_planner.simulation.measurements import SimulationMeasurements
from cornserve_planner.simulation.racks import Racks, RackTopology
from cornserve_planner.simulation.serving import ServingSimulation
from cornserve_planner.simulation.serving_settings import ServingSettings
from cornserve_planner.simulation.simulated_request import SimulatedRequest
from cornserve_planner.simulation.simulation_result import SimulationRequest, SimulationResult, simulate_plan
from cornserve_planner.simulation.step_model import EngineLimits, StepModel
from cornserve_policies.board import Board, ReplicaLoad
from cornserve_policies.path_table import PathTable, RoutableCell
from cornserve_policies.registry import routing_policy, routing_policy_names
from cornserve_policies.replayable_random import ReplayableRandom
from cornserve_policies.replica_routing import RoutedInvocation, RoutingPolicy
from tests.unit.planner.simulation.conftest import profile_text
from tests.unit.planner.simulation.step_by_step import StepByStepEngine, SteppedRequest


def simulated(inputs: Path, settings: ServingSettings | None = None, **options: Any) -> SimulationResult:
    plan = PlanFile.read(inputs / "plan.json")
    return simulate_plan(SimulationRequest(plan, "plan.json", settings=settings or ServingSettings(), **options))


class Simulated:
    """The end times of given requests, by id."""

    def __init__(
        self,
        inputs: Path,
        requests: list[SimulatedRequest],
        *,
        profile: str | None = None,
        routing: RoutingPolicy | None = None,
        settings: ServingSettings | None = None,
    ) -> None:
        plan = PlanFile.read(inputs / "plan.json")
        models = executor_models(plan, None if profile is None else ModelProfile.read(inputs / profile))
        self.ends: dict[str, float] = {}
        self.firsts: dict[str, float] = {}
        self.ways: dict[str, tuple[str, str, int]] = {}
        self.refused: list[str] = []
        self.failed: list[str] = []
        policy = routing or routing_policy("least-loaded")
        self.simulation = ServingSimulation(plan, models, policy, settings or ServingSettings(), self)
        self.simulation.run(requests)

    def request_refused(self, request: SimulatedRequest, refusal: object) -> None:
        self.refused.append(request.id)

    def request_failed(self, run: Any) -> None:
        self.failed.append(run.request.id)

    def stage_ended(self, invocation: object) -> None: ...

    def invocations(self) -> int:
        """Returns the invocations that the gateways know of."""
        groups = [group for cell in self.simulation.cells.cells.values() for group in cell.groups.values()]
        return sum(replica.load.invocations(0.0) for group in groups for replica in group.replicas.values())

    def request_ended(self, run: Any) -> None:
        self.ends[run.request.id] = self.simulation.events.now
        self.firsts[run.request.id] = run.first
        self.ways[run.request.id] = run.way


def speech(id: str = "a", arrival: float = 0.0) -> SimulatedRequest:
    return SimulatedRequest(id, arrival, "speech", 100, 400, 20)


def test_one_seed_gives_the_same_bytes_and_another_seed_does_not(inputs: Path) -> None:
    documents = [json.dumps(simulated(inputs, count=300, seed=seed).as_document()) for seed in (1, 1, 2)]

    assert documents[0] == documents[1] != documents[2]


def test_a_request_alone_takes_the_time_of_each_stage_and_of_the_transfers(inputs: Path) -> None:
    settings = ServingSettings(gateway_seconds=0.1, latency=0.01, bandwidth=1000.0, transfers={"E": 50.0})

    found = Simulated(inputs, [speech()], settings=settings)

    gateway, stages, transfers = 0.1, 0.25 + 0.5 + 0.125, 50.0 / 1000.0 + 2 * 0.01
    assert found.ends["a"] == pytest.approx(gateway + stages + transfers)


def test_a_request_is_sent_after_those_it_depends_on(inputs: Path) -> None:
    def text(id: str, *after: str, delay: float = 0.0) -> SimulatedRequest:
        return SimulatedRequest(id, 0.0, "text", 10, 0, 5, name=id, after=after, delay=delay)

    requests = [text("a"), text("b", "a", delay=2.0), text("c", "a", "b"), text("d", "a")]
    found = Simulated(inputs, requests)

    assert found.ends == pytest.approx({"a": 0.5, "d": 1.0, "b": 3.0, "c": 3.5})
    assert [request.arrival for request in requests] == pytest.approx([0.0, 2.5, 3.0, 0.5])


class RecordedRouting:
    """Chooses the first replica, and records the times of its choices."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def choose(self, invocation: RoutedInvocation, board: Board, now: float) -> ReplicaLoad | None:
        self.times.append(now)
        return board.available[0]


@pytest.mark.parametrize(("binds_late", "times"), [(False, [0.0] * 3), (True, [0.0, 0.25, 0.75])])
def test_late_binding_chooses_a_replica_when_the_producer_has_ended(
    inputs: Path, binds_late: bool, times: list[float]
) -> None:
    policy = RecordedRouting()
    found = Simulated(inputs, [speech()], routing=policy, settings=ServingSettings(binds_late=binds_late))

    assert policy.times == pytest.approx(times)
    assert found.ends == {"a": pytest.approx(0.25 + 0.5 + 0.125)}
    assert found.invocations() == 0


def late_plan(inputs: Path, *options: str) -> PlanFile:
    request = PlanRequest(
        str(inputs / "model.yaml"),
        rate=8.0,
        largest_cell=8,
        workload=inputs / "workload.yaml",
        profile=inputs / "profile.yaml",
        late_binding=options,
    )
    return make_plan(request).file


def test_a_plan_has_late_binding_where_its_options_read_the_tensors_of_one_step(inputs: Path, tmp_path: Path) -> None:
    late_plan(inputs, "L").write(tmp_path / "plan.json")
    plan = PlanFile.read(tmp_path / "plan.json")
    policy = RecordedRouting()

    found = Simulated(tmp_path, [speech()], routing=policy)

    steps = {kind: plan.types[kind].paths[0].steps for kind in ("speech", "text")}
    assert [(step.option, step.binding) for step in steps["speech"]] == [("E", None), ("L", "late"), ("V", None)]
    assert [(step.option, step.binding) for step in steps["text"]] == [("L", None)]
    assert policy.times == pytest.approx([0.0, 0.0, 0.25])
    assert found.ends == {"a": pytest.approx(0.25 + 0.5 + 0.125)}


def test_an_option_that_reads_no_other_has_no_late_binding(inputs: Path) -> None:
    with pytest.raises(InvalidInputError, match="--late-binding: no path of tiny has 'E' after one other"):
        late_plan(inputs, "E")


def test_a_replica_sends_one_transfer_at_a_time(inputs: Path) -> None:
    """Two requests end their encoding at the same time, on two replicas, and then follow others to one link."""
    settings = ServingSettings(bandwidth=100.0, transfers={"E": 100.0})

    alone = Simulated(inputs, [speech()], settings=settings).ends["a"]
    first_of_replica = Simulated(inputs, [speech(str(number)) for number in range(4)], settings=settings)

    assert alone == pytest.approx(0.25 + 1.0 + 0.5 + 0.125)
    assert max(first_of_replica.ends.values()) >= 0.25 + 2 * 1.0 + 0.5 + 0.125


def test_a_transfer_between_racks_takes_the_link_of_a_rack_too(inputs: Path) -> None:
    """The encoders fill the first rack. The first language models and the vocoder are in two others."""
    encoders = PlanFile.read(inputs / "plan.json").cells[-1].replicas["E"]
    racks = RackTopology(gpus=encoders, bandwidth=50.0, latency=0.5)
    settings = ServingSettings(bandwidth=100.0, transfers={"E": 100.0}, racks=racks)
    within = replace(settings, racks=replace(racks, gpus=8))
    stages = 0.25 + 0.5 + 0.125

    assert Simulated(inputs, [speech()], settings=within).ends["a"] == pytest.approx(stages + 1.0)
    assert Simulated(inputs, [speech()], settings=settings).ends["a"] == pytest.approx(stages + 2.0 + 2 * 0.5)

    both = Simulated(inputs, [speech("a"), speech("b")], settings=settings).ends  # on different replicas
    assert max(both.values()) == pytest.approx(stages + 2 * 2.0 + 2 * 0.5)


def test_a_replica_that_is_larger_than_a_rack_is_refused(inputs: Path) -> None:
    plan = PlanFile.read(inputs / "plan.json")
    options = plan.options | {"L": plan.options["L"].model_copy(update={"gpus": 8})}
    racks = RackTopology(gpus=4, bandwidth=1.0, latency=0.0)
    large = plan.model_copy(update={"options": options})
    with pytest.raises(InvalidInputError, match="--racks: have 4 GPUs, but a replica of L has 8"):
        simulate_plan(SimulationRequest(large, "plan.json", settings=ServingSettings(racks=racks)))


def test_the_gpus_of_replicas_that_have_ended_are_free_in_their_rack() -> None:
    racks = Racks(RackTopology(gpus=4, bandwidth=1.0, latency=0.0))
    first = [racks.place("L", 2) for _ in range(2)]
    assert first[0].rack is first[1].rack
    other = racks.place("L", 3)
    assert other.rack is not first[0].rack
    first[0].leave()
    first[0].leave()
    assert racks.place("L", 2).rack is first[0].rack
    assert racks.place("L", 1).rack is other.rack
    assert racks.place("L", 1).rack not in (first[0].rack, other.rack)


def test_a_streamed_component_begins_with_the_first_output_and_ends_after_the_last(inputs: Path) -> None:
    first = 0.25 + 2 * 0.01 + 0.0001 * 500

    at_the_end = Simulated(inputs, [speech()], profile="steps.yaml")
    streamed = Simulated(
        inputs, [speech()], profile="steps.yaml", settings=ServingSettings(streamed=frozenset({"vocoder"}))
    )

    total = 0.25 + 21 * 0.01 + 0.0001 * (500 + 19)  # two chunks of the prompt, and 19 further tokens
    assert at_the_end.firsts["a"] == streamed.firsts["a"] == pytest.approx(first)
    assert at_the_end.ends["a"] == pytest.approx(total + 0.125)
    assert streamed.ends["a"] == pytest.approx(max(total, first + 0.125))


def test_language_models_with_a_step_model_are_simulated_by_it(inputs: Path) -> None:
    requests = [SimulatedRequest(str(number), number * 0.03, "text", 200, 0, 30) for number in range(40)]
    engine = StepByStepEngine(StepModel(fixed=0.01, per_token=0.0001), EngineLimits(8, 250, 1000))
    engine.run([SteppedRequest(number, number * 0.03, 200, 30) for number in range(40)])

    class OneReplica:
        def choose(self, invocation: RoutedInvocation, board: Board, now: float) -> ReplicaLoad | None:
            return board.available[0]

    found = Simulated(inputs, requests, profile="steps.yaml", routing=OneReplica())

    assert [*map(int, found.ends)] == engine.ended
    used = [
        replica.engine.busy_seconds > 0 for replica in found.simulation.cells.cells["8-0"].groups["L"].replicas.values()
    ]
    assert used == [True] + [False] * 4


def test_paths_are_those_that_gateways_choose(inputs: Path) -> None:
    plan = PlanFile.read(inputs / "plan.json")
    plan = plan.with_counts({4: 2, 8: 1}, None)
    requests = [speech(str(number), number * 0.3) for number in range(200)]
    cells = [(f"{cell.gpus}-{number}", cell) for cell in plan.cells for number in range(cell.count)]
    table = PathTable(
        {name: kind.components for name, kind in plan.types.items()},
        "text",
        [RoutableCell(name, cell.rate, cell.probabilities) for name, cell in cells],
    )
    measurements = SimulationMeasurements()
    simulation = ServingSimulation(
        plan, executor_models(plan, None), routing_policy("static"), ServingSettings(), measurements
    )
    measurements.events = simulation.events
    simulation.run(requests)

    chosen = Counter(table.choose("speech", ReplayableRandom(request.id)) for request in requests)
    assert measurements.ways == chosen
    assert len({way.cell for way in chosen}) == 3


@pytest.mark.parametrize("routing", routing_policy_names())
def test_every_routing_policy_serves_all_requests(inputs: Path, routing: str) -> None:
    found = simulated(inputs, count=400, routing=routing).as_document()

    assert found["completed"] == 400
    assert found["executors"]["L"]["utilization"] == pytest.approx(8.0 * 0.5 / 5, rel=0.15)


def test_a_load_above_the_capacity_is_refused_down_to_what_meets_the_target(inputs: Path) -> None:
    everything = simulated(inputs, ServingSettings(ttft=3.0), rate=16.0, count=3000)
    refusing = simulated(inputs, ServingSettings(ttft=3.0, refuses=True), rate=16.0, count=3000)

    assert everything.measurements.completed == 3000
    document = refusing.as_document()
    assert document["refused"]["ttft"] + document["completed"] == 3000
    late = [
        sum(seconds > 3.0 for of_type in result.measurements.latencies.values() for seconds in of_type["ttft"].seconds)
        for result in (everything, refusing)
    ]
    assert late[1] < late[0] / 4


@pytest.mark.parametrize("profile", [None, "steps.yaml"])
@pytest.mark.parametrize("target", ["ttft", "e2e", None])
def test_requests_with_a_target_run_in_the_order_in_which_they_are_due(
    inputs: Path, target: str | None, profile: str | None
) -> None:
    """Each replica of the language model runs requests when a large and a small one arrive after each other."""
    running = [SimulatedRequest(f"running {number}", 0.0, "text", 100, 0, 20) for number in range(5 * 8)]
    large = [SimulatedRequest(f"large {number}", 0.02, "text", 2000, 0, 20) for number in range(5)]
    small = [SimulatedRequest(f"small {number}", 0.03, "text", 10, 0, 20) for number in range(5)]
    settings = ServingSettings(**{} if target is None else {target: 60.0})  # type: ignore[arg-type]

    found = Simulated(inputs, [*running, *large, *small], settings=settings, profile=profile)

    small_ends = [found.ends[request.id] for request in small]
    large_ends = [found.ends[request.id] for request in large]
    assert (max(small_ends) < min(large_ends)) == (target is not None)


def test_requests_that_do_not_fit_in_the_cache_are_refused(inputs: Path) -> None:
    requests = [SimulatedRequest("long", 0.0, "text", 20_000, 0, 5), SimulatedRequest("short", 0.0, "text", 20, 0, 5)]

    found = Simulated(inputs, requests, profile="steps.yaml")

    assert found.refused == ["long"]
    assert [*found.ends] == ["short"]
    assert found.invocations() == 0


def test_an_encoder_with_a_latency_curve_serves_batches(inputs: Path) -> None:
    latency = ", latency: [{batch: [1, 4], seconds: [0.3, 0.6], tag: measured, source: a test}]"
    text = (inputs / "profile.yaml").read_text().replace("a test}}]}", f"a test}}}}]{latency}}}", 1)
    (inputs / "curves.yaml").write_text(text)

    found = Simulated(inputs, [speech(str(number)) for number in range(8)], profile="curves.yaml")

    work = 0.25 / (0.6 / 4)  # The plan's seconds of a request, relative to those at the fastest batch size.
    encoded = 0.6 * work
    assert min(found.ends.values()) == pytest.approx(encoded + 0.5 + 0.125)


CURVE = ", latency: [{batch: [1, 4], seconds: [0.25, 0.4], tag: measured, source: a test}]"


def test_the_seconds_of_a_plan_with_batch_sizes_are_those_of_its_batch_size(inputs: Path, tmp_path: Path) -> None:
    fields = json.loads((inputs / "plan.json").read_text())
    fields["options"]["E"]["batch"] = 1
    (tmp_path / "plan.json").write_text(json.dumps(fields))
    (tmp_path / "curves.yaml").write_text(profile_text(latency=CURVE))

    found = Simulated(tmp_path, [speech()], profile="curves.yaml")

    assert found.ends["a"] == pytest.approx(0.25 + 0.5 + 0.125)


def test_options_with_a_common_executor_have_their_times(inputs: Path, tmp_path: Path) -> None:
    fields = json.loads((inputs / "plan.json").read_text())
    for name in ("E", "L"):
        fields["options"][name].update(task="shared", settings={})
    (tmp_path / "plan.json").write_text(json.dumps(fields))

    found = Simulated(tmp_path, [speech()])
    document = simulated(tmp_path, count=50).as_document()

    assert found.ends["a"] == pytest.approx(0.25 + 0.5 + 0.125)
    assert document["stages"].keys() == document["executors"].keys() == {"E", "V"}
    assert document["stages"]["E"]["requests"] > 50


def write_requests(path: Path, *requests: dict[str, Any]) -> Path:
    header = {"format": "cornserve-planner/requests", "version": 1}
    path.write_text("\n".join(map(json.dumps, [header, *requests])))
    return path


def test_time_and_costs_begin_with_the_first_request(inputs: Path, tmp_path: Path) -> None:
    requests = ({"arrival": arrival, "text_tokens": 9, "output_tokens": 1} for arrival in (36_000.0, 36_001.0))

    document = simulated(inputs, workload=write_requests(tmp_path / "late.jsonl", *requests)).as_document()

    assert document["seconds"] == pytest.approx(1.5)
    assert document["gpu_hours"]["A100-80GB"] == pytest.approx(8 * 1.5 / 3600)
    assert document["latency"]["text"]["e2e"]["p50"]["value"] == pytest.approx(0.5)


def test_a_request_without_output_tokens_has_one(inputs: Path, tmp_path: Path) -> None:
    workload = write_requests(tmp_path / "short.jsonl", {"arrival": 0, "text_tokens": 100, "output_tokens": 0})

    result = simulated(inputs, workload=workload, profile=inputs / "steps.yaml")

    assert result.measurements.end == pytest.approx(0.01 + 0.0001 * 100)


def test_attainment_is_that_of_admitted_requests(inputs: Path) -> None:
    settings = ServingSettings(ttft=3.0, refuses=True)

    result = simulated(inputs, settings, rate=16.0, count=3000)

    columns = [of_type["ttft"].seconds for of_type in result.measurements.latencies.values()]
    met = sum(seconds <= 3.0 for each in columns for seconds in each)
    assert result.measurements.refused.total() > 100
    assert result.as_document()["attainment"] == {"ttft": pytest.approx(met / result.measurements.completed)}


@pytest.fixture
def recorded(inputs: Path, tmp_path: Path) -> Path:
    lines = [
        {"arrival": number * 0.5, "text_tokens": 50, "output_tokens": 10, "images": [{"tokens": 300}] * (number % 2)}
        | ({"output_modalities": ["text", "audio"]} if number % 2 else {})
        for number in range(100)
    ]
    return write_requests(tmp_path / "requests.jsonl", *lines)


def test_a_file_of_requests_is_replayed_at_its_rate_or_another_one(inputs: Path, recorded: Path) -> None:
    options: dict[str, Any] = {"workload": recorded, "profile": inputs / "steps.yaml"}

    at_its_rate, faster = simulated(inputs, **options), simulated(inputs, rate=4.0, **options)

    assert at_its_rate.measurements.end == pytest.approx(49.5, abs=2.0)
    assert faster.measurements.end == pytest.approx(99 / 4.0, abs=2.0)
    assert {path["type"]: path["requests"] for path in faster.as_document()["paths"]} == {"speech": 50, "text": 50}


def test_costs_are_those_of_all_gpus_of_the_plan(inputs: Path) -> None:
    result = simulated(inputs, count=50)
    plan = PlanFile.read(inputs / "plan.json")
    document = result.as_document()

    assert plan.dollars is not None
    assert document["gpu_hours"] == {"A100-80GB": pytest.approx(8 * document["seconds"] / 3600)}
    assert document["dollars"] == pytest.approx(plan.dollars * document["seconds"] / 3600)
