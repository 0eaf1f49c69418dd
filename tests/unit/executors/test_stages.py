"""The executor with set service times."""

from __future__ import annotations

import json
from time import monotonic

import pytest

from cornserve_echo.stages import StageTask, caption_app
from tests.executor_caller import calling
from tests.unit.echo_executors import EchoExecutors
from tests.unit.executors.test_service import end_of, ends, start
from tests.waiting import until

SECONDS = 0.05


@pytest.mark.parametrize(("concurrency", "rounds"), [(1, 6), (3, 2)])
async def test_requests_take_the_set_times_one_after_the_other(
    executors: EchoExecutors, concurrency: int, rounds: int
) -> None:
    task = StageTask(seconds={"encoder": SECONDS / 2, "llm": SECONDS / 2}, concurrency=concurrency)
    async with calling(await executors.endpoint(task.spec)) as caller:
        began = monotonic()
        caller.send(*(start(call, '{"items": {"encoder": 1, "llm": 1}}') for call in range(6)))
        results = await ends(caller, 6)
        assert monotonic() - began >= rounds * SECONDS

    assert [json.loads(end.values)["seconds"] for end in results.values()] == [SECONDS] * 6


async def test_the_items_of_a_component_multiply_its_time(executors: EchoExecutors) -> None:
    async with calling(await executors.endpoint(StageTask(seconds={"encoder": 0.01, "llm": 5}).spec)) as caller:
        end = await end_of(caller, start(1, '{"items": {"encoder": 3}, "text": "three"}'))

    values = json.loads(end.values)
    assert values == {"text": "three", "seconds": pytest.approx(0.03)}


async def test_a_cancelled_request_frees_its_server(executors: EchoExecutors) -> None:
    endpoint = await executors.endpoint(StageTask(seconds={"llm": 1}).spec)
    async with calling(endpoint) as other, calling(endpoint) as caller:
        other.send(start(1, '{"items": {"llm": 1000}}'))
        await until(lambda: executors.running(endpoint) == 1)
        caller.send(start(2, '{"items": {"llm": 0}}'))
        await until(lambda: executors.running(endpoint) == 2)

        other.abort()

        assert json.loads((await ends(caller, 1))[2].values)["seconds"] == 0


async def test_a_component_without_a_set_time_is_refused_by_name(executors: EchoExecutors) -> None:
    async with calling(await executors.endpoint(StageTask(seconds={"llm": 1}).spec)) as caller:
        end = await end_of(caller, start(1, '{"items": {"encoder": 1}}'))

    assert "unknown components encoder: choose from llm" in end.message


def test_the_monolith_and_the_last_path_of_a_caption_app_share_an_executor() -> None:
    assert len(caption_app("captions", encoder=1, llm=1).executor_specs()) == 3
