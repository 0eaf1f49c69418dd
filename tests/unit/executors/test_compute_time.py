"""The time of a replica is divided among the invocations that compute at the same time."""

from __future__ import annotations

import asyncio

from cornserve.v1 import executor_pb2 as pb
from cornserve_executors.base.compute_time import ComputeClock, ComputeTime
from tests.executor_caller import Caller
from tests.fake_time import FakeTime


def test_invocations_divide_the_time_in_which_they_compute_together() -> None:
    time = FakeTime()
    clock = ComputeClock(time.monotonic)
    time.now += 100  # Nothing computes.
    first = ComputeTime(clock)
    time.now += 2
    second = ComputeTime(clock)
    time.now += 6
    ended = first.end()
    time.now += 1

    assert (ended, second.end(), clock.busy_seconds) == (2 + 3, 3 + 1, 9)


def test_an_invocation_that_waits_leaves_the_time_to_the_others() -> None:
    time = FakeTime()
    clock = ComputeClock(time.monotonic)
    waiting, computing = ComputeTime(clock), ComputeTime(clock)
    waiting.pause()
    time.now += 4
    waiting.resume()
    time.now += 2
    computing.end()
    waiting.pause()
    time.now += 10

    assert (waiting.end(), computing.end(), clock.busy_seconds) == (1, 5, 6)


def test_an_invocation_that_has_ended_does_not_resume() -> None:
    time = FakeTime()
    clock = ComputeClock(time.monotonic)
    invocation = ComputeTime(clock)
    invocation.pause()
    invocation.end()
    invocation.resume()
    time.now += 5

    assert (invocation.end(), clock.busy_seconds) == (0, 0)


async def test_ends_contain_the_times_of_their_invocations(caller: Caller) -> None:
    started = asyncio.get_running_loop().time()
    for call in (1, 2):
        request = b'{"text": "a", "seconds": 0.05}'
        caller.send(pb.Command(call=call, start=pb.Start(request_id="r", invocation=call, request=request)))
    events = [await caller.read(), await caller.read()]
    seconds = asyncio.get_running_loop().time() - started

    times = [event.end.compute_seconds for event in events if event is not None]
    assert len(times) == 2
    assert 0.04 < sum(times) <= seconds
