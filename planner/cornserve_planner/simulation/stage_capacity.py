"""The load that a replica takes within the part of its stage in the TTFT target, by simulation [M §4.2]."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from random import Random
from statistics import fmean
from typing import NamedTuple

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.simulation.event_queue import EventQueue
from cornserve_planner.simulation.executor_model import ExecutorModel
from cornserve_planner.simulation.load_search import PRECISION, STEP, highest_load
from cornserve_planner.simulation.request_run import StageInvocation
from cornserve_planner.simulation.running_cells import start_engine
from cornserve_planner.simulation.serving import ServingSimulation
from cornserve_planner.simulation.simulated_request import SimulatedRequest
from cornserve_planner.simulation.stage_runner import new_job
from cornserve_policies.attainment import ATTAINMENT


class StageCapacity(NamedTuple):
    """The load that one replica takes: requests per second, and tokens of their inputs per second if they are known."""

    requests: float
    tokens: float | None = None


class _Stage(NamedTuple):
    """The invocations of an executor, with the part of the target that they may take."""

    option: str
    model: ExecutorModel
    invocations: Sequence[StageInvocation]
    limit: float


def stage_capacities(
    simulation: ServingSimulation,
    models: Mapping[str, ExecutorModel],
    requests: Iterable[SimulatedRequest],
    options: Iterable[str],
    ttft: float,
) -> dict[str, StageCapacity]:
    """Returns the load that one replica of each option takes.

    The target is divided among the stages until the first token by the seconds that a request takes there alone.
    A replica takes the highest load of random arrivals at which 95 % of them take no longer than this part.

    Raises `InvalidInputError` for options that no request needs for its first token, and for targets that are too
    short.
    """
    runs = [run for run in map(simulation.route, requests) if all(map(simulation.fits, run.invocations))]
    stages: dict[str, list[StageInvocation]] = {}
    alone: dict[StageInvocation, float] = {}
    totals: dict[str, list[float]] = {}
    for run in runs:
        before = [each for each in run.invocations if _is_before_first_token(each)]
        for each in before:
            stages.setdefault(each.stage.executor, []).append(each)
            alone[each] = _seconds([each], models[each.stage.executor], [0.0])[0]
        total = sum(alone[each] for each in before)
        for executor in {each.stage.executor for each in before}:
            totals.setdefault(executor, []).append(total)
    found = {}
    for option in options:
        executor = simulation.cells.executors[option]
        if executor not in stages:
            raise InvalidInputError(
                f"--autoscale {option}", "is not needed for a first token: give the load that a replica takes"
            )
        own = fmean(alone[each] for each in stages[executor])
        limit = ttft * own / fmean(totals[executor])
        rate = _capacity(_Stage(option, models[executor], stages[executor], limit))
        found[option] = StageCapacity(rate, _tokens(rate, stages[executor]))
    return found


def _tokens(rate: float, invocations: Sequence[StageInvocation]) -> float | None:
    """Returns the tokens per second of the inputs, as gateways count them. None if the tokens of some are unknown."""
    total = 0
    for each in invocations:
        request = each.run.request
        text = request.text if each.stage.takes_text else 0
        if text is None or request.media is None:
            return None
        total += text + request.media
    return rate * total / len(invocations) or None


def _is_before_first_token(invocation: StageInvocation) -> bool:
    """Whether the first token of the request follows from the invocation, or from the invocations that read it."""
    role, consumers = invocation.stage.role, [each for each, _ in invocation.consumers()]
    if role == "decode":
        return not any(each.stage.role == "prefill" for each in invocation.run.invocations)
    has_role = any(each.stage.role for each in invocation.run.invocations)
    return bool(role) or not (consumers or has_role) or any(_is_before_first_token(each) for each in consumers)


def _capacity(stage: _Stage) -> float:
    gaps = Random(0)
    arrivals = [*accumulate(gaps.expovariate(1.0) for _ in stage.invocations)]
    at_once = _seconds(stage.invocations, stage.model, [0.0] * len(arrivals))
    most = len(arrivals) / max(at_once)

    def meets(load: float) -> bool:
        seconds = _seconds(stage.invocations, stage.model, [each / load for each in arrivals])
        return sum(each <= stage.limit for each in seconds) >= ATTAINMENT * len(seconds)

    load = highest_load(meets, most / STEP, most / PRECISION)
    if not load:
        raise InvalidInputError(
            f"--autoscale {stage.option}",
            f"its part of --ttft is {stage.limit:.3g} s, which it meets at no load: raise --ttft",
        )
    return load


def _seconds(invocations: Sequence[StageInvocation], model: ExecutorModel, arrivals: Sequence[float]) -> list[float]:
    """Returns the seconds from the arrivals of invocations at one replica to their first tokens, or to their ends."""
    times = _StageTimes(EventQueue(), dict(zip(invocations, arrivals, strict=True)))
    engine = start_engine(times.events, model, times)
    for invocation, arrival in zip(invocations, arrivals, strict=True):
        times.events.add(arrival, engine.submit, new_job(invocation, model))
    times.events.run()
    return times.seconds


class _StageTimes:
    """Collects the seconds of invocations.

    Args:
        arrivals: the times at which they arrive.
    """

    def __init__(self, events: EventQueue, arrivals: Mapping[StageInvocation, float]) -> None:
        self.events = events
        self.seconds: list[float] = []
        self._arrivals = arrivals

    def first_output(self, owner: StageInvocation) -> None:
        if owner.stage.role or not owner.stage.consumers:
            self._add(owner)

    def ended(self, owner: StageInvocation) -> None:
        if owner.stage.consumers and not owner.stage.role:
            self._add(owner)

    def _add(self, owner: StageInvocation) -> None:
        self.seconds.append(self.events.now - self._arrivals[owner])
