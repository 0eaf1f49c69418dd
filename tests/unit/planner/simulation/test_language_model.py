"""The closed form of a language model's engine has the times and the order of one event for each step."""

from __future__ import annotations

import random
from itertools import accumulate
from math import inf

import pytest

from cornserve_planner.simulation.event_queue import EventQueue
from cornserve_planner.simulation.language_model import LanguageModelReplica
from cornserve_planner.simulation.step_model import EngineLimits, StepModel
from cornserve_planner.simulation.token_sequence import TokenSequence
from tests.unit.planner.examples import examples
from tests.unit.planner.simulation.step_by_step import StepByStepEngine, SteppedRequest

MODEL = StepModel(fixed=2e-3, weights=4e-3, per_token=6e-5, per_sequence=1e-5, per_context_token=2e-8)


class OutputTimes:
    def __init__(self, events: EventQueue) -> None:
        self.events = events
        self.first_outputs: dict[int, float] = {}
        self.ends: dict[int, float] = {}

    def first_output(self, owner: int) -> None:
        self.first_outputs[owner] = self.events.now

    def ended(self, owner: int) -> None:
        self.ends[owner] = self.events.now


def closed_form(requests: list[SteppedRequest], limits: EngineLimits, model: StepModel = MODEL) -> OutputTimes:
    events = EventQueue()
    listener = OutputTimes(events)
    replica = LanguageModelReplica(events, model, limits, listener)
    for request in requests:
        sequence = TokenSequence(
            request.prompt, request.output, cached=request.cached, priority=request.priority, owner=request.number
        )
        events.add(request.arrival, replica.submit, sequence)
        if request.cancelled_at < inf:
            events.add(request.cancelled_at, replica.cancel, sequence)
    events.run()
    assert replica.load == 0
    return listener


def random_case(seed: int) -> tuple[list[SteppedRequest], EngineLimits]:
    rng = random.Random(seed)
    size = rng.choice([1, 2, 16])
    seqs = rng.choice([1, 2, 5, 32])
    longest = rng.choice([8, 60, 400])
    budget = seqs + rng.choice([1, 7, 50, 2000])
    least = -(-2 * longest // size)
    limits = EngineLimits(seqs, budget, least + rng.choice([0, least // 4, 2 * least, 40 * least]), size)
    arrivals = accumulate(rng.expovariate(rng.choice([1.0, 20.0, 400.0])) for _ in range(rng.randint(1, 60)))
    priorities = rng.choice([[0], [0, 1], [0, 1, 2, 3]])
    requests = []
    for number, arrival in enumerate(arrivals):
        prompt = rng.randint(1, longest)
        cached = rng.choice([0, 0, rng.randint(0, prompt)])
        cancelled = arrival + rng.expovariate(4.0) if rng.random() < 0.15 else inf
        requests.append(
            SteppedRequest(number, arrival, prompt, rng.randint(1, longest), cached, rng.choice(priorities), cancelled)
        )
    return requests, limits


@examples(100, 1000)
def test_the_closed_form_equals_one_event_for_each_step(examples: int) -> None:
    preemptions = 0
    for seed in range(examples):
        requests, limits = random_case(seed)
        found = closed_form(requests, limits)
        engine = StepByStepEngine(MODEL, limits)
        engine.run(requests)

        assert [*found.ends] == engine.ended, seed
        assert [*found.first_outputs] == engine.first_outputs, seed
        for request in requests:
            if request.first_output is not None:
                assert abs(found.first_outputs[request.number] - request.first_output) < 1e-9, seed
            if request.end is not None:
                assert abs(found.ends[request.number] - request.end) < 1e-9, seed
        preemptions += engine.preemptions
    assert preemptions > examples


def test_a_prompt_longer_than_the_budget_is_computed_in_chunks() -> None:
    limits = EngineLimits(max_num_seqs=4, max_num_batched_tokens=100, cache_blocks=100)
    model = StepModel(fixed=1.0)

    found = closed_form([SteppedRequest(0, 0.0, prompt=250, output=3)], limits, model)

    assert found.first_outputs == {0: 3.0}
    assert found.ends == {0: 5.0}


def test_the_steps_of_a_long_output_are_not_simulated_one_by_one() -> None:
    output = 10**9
    limits = EngineLimits(max_num_seqs=4, max_num_batched_tokens=100, cache_blocks=10**9)
    model = StepModel(fixed=1e-3, per_context_token=1e-9)

    found = closed_form([SteppedRequest(0, 0.0, prompt=1, output=output)], limits, model)

    assert found.ends[0] == pytest.approx(1e-3 * output + 1e-9 * output * (output + 1) / 2, rel=1e-12)
