"""Invocations that wait for capacity on a replica: their order, their number, and what capacity is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cornserve_policies.board import MAX_REPORT_SECONDS, Board, LoadLimits, LoadReport, ReplicaLoad
from cornserve_policies.invocation_queue import Arrival, InvocationQueue

LIMIT = 5

arrivals = st.builds(Arrival, st.integers(0, 3), st.sampled_from("abc"), st.integers(0, 3))
additions = st.tuples(st.just("add"), arrivals)
removals = st.tuples(st.just("remove"), arrivals)
starts = st.tuples(st.just("start"), st.integers(0, 2 * LIMIT))


@given(st.lists(st.one_of(additions, removals, starts), max_size=60))
def test_invocations_start_in_the_order_of_arrival_and_their_number_is_bounded(
    events: list[tuple[str, Arrival | int]],
) -> None:
    queue, queued = InvocationQueue[Arrival](LIMIT), set[Arrival]()
    for event in events:
        match event:
            case "add", Arrival() as arrival if arrival not in queued:
                is_added = queue.add(arrival, arrival)
                assert is_added == (len(queued) < LIMIT)
                queued |= {arrival} if is_added else set()
            case "remove", Arrival() as arrival:
                queue.remove(arrival)
                queued.discard(arrival)
            case "start", int(capacity):
                started: list[Arrival] = []

                def try_start(arrival: Arrival, capacity: int = capacity, started: list[Arrival] = started) -> bool:
                    if len(started) == capacity:
                        return False
                    started.append(arrival)
                    return True

                queue.start(try_start)
                assert started == sorted(queued)[:capacity]
                queued -= {*started}
        assert len(queue) == len(queued)


def test_a_replica_has_capacity_for_a_number_of_invocations_at_a_time() -> None:
    replica = ReplicaLoad("replica")
    replica.start(1, 60)
    assert replica.has_capacity(10**9, now=0)

    replica.capacity = LoadLimits(invocations=2)
    assert replica.has_capacity(10**9, now=0)
    replica.start(2, 0)
    assert not replica.has_capacity(0, now=0)

    replica.end(1)
    assert replica.has_capacity(0, now=0)


def test_a_replica_takes_tensors_of_a_context_at_a_time_or_a_single_one() -> None:
    replica = ReplicaLoad("replica")
    replica.capacity = LoadLimits(tokens=100)
    replica.start(1, 1000)
    assert replica.has_capacity(101, now=0)

    replica.start(2, 60)
    replica.expect_taking(2)
    assert replica.has_capacity(40, now=0)
    assert not replica.has_capacity(41, now=0)

    replica.end_taking(2)
    assert replica.has_capacity(101, now=0)
    replica.start(3, 60)
    replica.expect_taking(3)
    replica.end(3)
    assert replica.has_capacity(101, now=0)


def test_the_invocations_of_other_callers_take_capacity_as_long_as_their_report_counts() -> None:
    replica = ReplicaLoad("replica")
    replica.capacity = LoadLimits(invocations=1)
    replica.report(LoadReport(0, 1, 0, 0, 0, 0))

    assert not replica.has_capacity(0, now=0)
    assert replica.has_capacity(0, now=MAX_REPORT_SECONDS)


def test_a_board_with_capacity_leaves_out_replicas_without() -> None:
    full, free = ReplicaLoad("full"), ReplicaLoad("free")
    full.capacity = LoadLimits(invocations=1)
    full.start(1, 0)

    board = Board([full, free], frozenset({"lost"})).with_capacity(0, now=0)

    assert board.available == [free]
    assert board.unavailable == {"full", "lost"}
