"""Routing policies, on boards whose loads the test sets."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from cornserve_policies.board import MAX_REPORT_SECONDS, Board, LoadReport, ReplicaLoad
from cornserve_policies.input_size import InputSize
from cornserve_policies.registry import routing_policy, routing_policy_names
from cornserve_policies.replica_routing import RoutedInvocation, RoutingPolicy


def loads(count: int) -> list[ReplicaLoad]:
    return [ReplicaLoad(f"replica-{index}") for index in range(count)]


def chosen(policy: RoutingPolicy, board: Board, request: str = "request", now: float = 0.0) -> str | None:
    replica = policy.choose(RoutedInvocation(request, 0, InputSize()), board, now)
    return None if replica is None else replica.id


def start(replica: ReplicaLoad, tokens: Sequence[int]) -> None:
    for call, size in enumerate(tokens):
        replica.start(call, size)


@pytest.mark.parametrize("name", routing_policy_names())
def test_a_policy_chooses_only_available_replicas(name: str) -> None:
    replicas = loads(3)
    unavailable = {"replica-0", "replica-2"}

    assert {chosen(routing_policy(name), Board(replicas, unavailable), str(n)) for n in range(50)} == {"replica-1"}
    assert chosen(routing_policy(name), Board(replicas, unavailable | {"replica-1"})) is None
    assert chosen(routing_policy(name), Board([])) is None


@pytest.mark.parametrize("name", routing_policy_names())
def test_the_same_history_leads_to_the_same_choices(name: str) -> None:
    def choices() -> list[str | None]:
        events, policy, replicas = random.Random(1), routing_policy(name), loads(5)
        by_id = {replica.id: replica for replica in replicas}
        running: list[tuple[str, int]] = []
        made = []
        for call in range(500):
            now = call / 100
            made.append(chosen(policy, Board(replicas), str(call), now))
            replica = by_id[made[-1] or ""]
            replica.start(call, events.randrange(1000))
            running.append((replica.id, call))
            if events.random() < 0.8:
                ended, ended_call = running.pop(events.randrange(len(running)))
                by_id[ended].end(ended_call)
                by_id[ended].report(LoadReport(now, events.randrange(4), 0, events.randrange(2000), 0, 0))
        return made

    assert choices() == choices()


def test_static_routing_draws_replicas_evenly_and_ignores_loads() -> None:
    replicas, policy = loads(4), routing_policy("static")
    start(replicas[0], [100] * 50)

    counts = Counter(chosen(policy, Board(replicas), str(n)) for n in range(4000))

    assert all(900 < counts[replica.id] < 1100 for replica in replicas)


def test_the_fewest_invocations_and_the_fewest_tokens_differ() -> None:
    replicas = loads(2)
    start(replicas[0], [1000])
    start(replicas[1], [10, 10])

    assert chosen(routing_policy("least-loaded"), Board(replicas)) == "replica-0"
    assert chosen(routing_policy("least-tokens"), Board(replicas)) == "replica-1"


def test_tokens_are_pending_until_their_invocation_has_output() -> None:
    replicas, policy = loads(2), routing_policy("least-tokens")
    start(replicas[0], [1000])
    start(replicas[1], [10])
    assert chosen(policy, Board(replicas)) == "replica-1"

    replicas[0].receive_output(0)

    assert chosen(policy, Board(replicas)) == "replica-0"
    replicas[0].end(0)
    assert replicas[0].pending_tokens(0.0) == replicas[0].invocations(0.0) == 0


def test_idle_replicas_are_chosen_in_turn() -> None:
    replicas, policy = loads(3), routing_policy("least-loaded")
    made = []
    for call in range(6):
        replica = policy.choose(RoutedInvocation("r", call, InputSize()), Board(replicas), 0.0)
        assert replica is not None
        replica.start(call, 0)
        replica.end(call)
        made.append(replica.id)

    assert made[:3] == made[3:]
    assert len({*made}) == 3


def test_reports_of_the_load_of_other_callers_count_until_they_are_old() -> None:
    replicas, policy = loads(2), routing_policy("least-loaded")
    replicas[0].report(
        LoadReport(at=10.0, running=4, waiting=1, pending_tokens=90, own_invocations=2, own_pending_tokens=50)
    )
    start(replicas[1], [0, 0])

    assert chosen(policy, Board(replicas), now=10.0) == "replica-1"
    assert chosen(policy, Board(replicas), now=10.0 + MAX_REPORT_SECONDS) == "replica-0"
    assert replicas[0].invocations(10.0) == 3
    assert replicas[0].pending_tokens(10.0) == 40


def test_power_of_two_avoids_the_busiest_replica_and_spreads_over_the_others() -> None:
    replicas, policy = loads(8), routing_policy("power-of-two")
    start(replicas[3], [0] * 5)

    counts = Counter(chosen(policy, Board(replicas), str(n)) for n in range(2000))

    assert counts["replica-3"] == 0
    assert all(counts[replica.id] > 150 for replica in replicas if replica is not replicas[3])


def test_the_size_of_an_input_is_the_sum_of_its_tokens() -> None:
    assert InputSize(text=3, media=4, output=100).tokens == 7
