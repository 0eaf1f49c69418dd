"""The options of an engine, with vLLM: those that the executor applies, and those that it rejects."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from cornserve.v1 import executor_pb2 as pb
from cornserve_executors.base import ExecutorStartError
from cornserve_executors.vllm import settings
from cornserve_tasklib import CompletionRequest, EngineOptions, LLMTask, ThinkerTask
from tests.executor_caller import calling
from tests.integration.engine_pool import EnginePool
from tests.integration.llm.client import connected
from tests.integration.llm.process import ExecutorProcess
from tests.models.tiny_families import tiny_model
from tests.waiting import until

CONTEXT = 2000


@pytest_asyncio.fixture(loop_scope="session")
async def limited(executors: EnginePool[ExecutorProcess], tiny_llama: Path) -> ExecutorProcess:
    options = EngineOptions(
        max_model_len=CONTEXT,
        max_num_seqs=1,
        max_num_batched_tokens=CONTEXT,
        kv_cache_memory_bytes=64 << 20,
        enable_prefix_caching=False,
        seed=7,
        engine_args={"block_size": 64, "scheduling_policy": "priority"},
    )
    return await executors.engine(LLMTask(model_id=str(tiny_llama), options=options))


async def test_a_prompt_longer_than_max_model_len_is_rejected(limited: ExecutorProcess) -> None:
    async with connected(limited.endpoint) as client:
        reply = await client.invoke(CompletionRequest(prompt=[1] * (CONTEXT + 1), max_tokens=1))

    assert reply.code == "INVALID_ARGUMENT"
    assert f"maximum context length is {CONTEXT} tokens" in reply.end.message


async def _order_of_ends(executor: ExecutorProcess, starts: Sequence[tuple[pb.Start, dict[str, Any]]]) -> list[int]:
    """Returns the numbers of the starts in the order of their ends. The first one runs while the others arrive.

    On one connection, the ends arrive in the order in which the executor sends them.
    """

    async def wait_until_waiting(count: int) -> None:
        async def is_waiting() -> bool:
            metrics = await executor.metrics()
            names = ("cornserve_llm_num_requests_running", "cornserve_llm_num_requests_waiting")
            return [metrics[name] for name in names] == [1, count]

        await until(is_waiting)

    done: list[int] = []
    async with calling(executor.endpoint) as caller:
        for number, (start, fields) in enumerate(starts):
            if number:  # Nothing else waits for the first, so it runs at once.
                await wait_until_waiting(number - 1)
            fields |= {"max_tokens": 2 if number else CONTEXT - 10, "ignore_eos": True}
            request = CompletionRequest(prompt="Hello", **fields).model_dump_json(exclude_defaults=True).encode()
            start.request_id, start.request = f"request-{number}", request
            caller.send(pb.Command(call=number, start=start))
        await wait_until_waiting(len(starts) - 1)
        while len(done) < len(starts):
            event = await caller.read()
            assert event is not None
            if event.HasField("end"):
                assert event.end.code == pb.CODE_OK, event.end.message
                done.append(event.call)
    return done


@pytest.mark.slow
async def test_waiting_requests_with_a_lower_priority_value_run_first(limited: ExecutorProcess) -> None:
    starts = [(pb.Start(), {"priority": priority}) for priority in (-9, 5, 3, 4)]
    assert await _order_of_ends(limited, starts) == [0, 2, 3, 1]


@pytest_asyncio.fixture(loop_scope="session")
async def ordered_by_due_time(executors: EnginePool[ExecutorProcess], tiny_llama: Path) -> ExecutorProcess:
    options = EngineOptions(
        max_model_len=CONTEXT, max_num_seqs=1, max_num_batched_tokens=CONTEXT, kv_cache_memory_bytes=64 << 20
    )
    return await executors.engine(LLMTask(model_id=str(tiny_llama), options=options))


@pytest.mark.slow
async def test_waiting_requests_that_are_due_earlier_run_first(ordered_by_due_time: ExecutorProcess) -> None:
    """A request without a due time is due ten seconds after its arrival."""
    second, now = 1_000_000, 1_700_000_000_000_000
    starts = [
        pb.Start(arrived_us=now),
        pb.Start(arrived_us=now + 1),
        pb.Start(arrived_us=now + 2, due_us=now + 12 * second),
        pb.Start(arrived_us=now + 3),
        pb.Start(arrived_us=now + 4, due_us=now + 2 * second),
    ]
    assert await _order_of_ends(ordered_by_due_time, [(start, {}) for start in starts]) == [0, 4, 1, 3, 2]


async def test_max_num_seqs_limits_the_requests_that_run(limited: ExecutorProcess) -> None:
    request = CompletionRequest(prompt="Hello", max_tokens=CONTEXT - 10, ignore_eos=True)

    async def one_runs_and_one_waits() -> bool:
        metrics = await limited.metrics()
        running, waiting = metrics["cornserve_llm_num_requests_running"], metrics["cornserve_llm_num_requests_waiting"]
        assert running <= 1
        return (running, waiting) == (1, 1)

    async with connected(limited.endpoint) as client:
        invocations = [await client.start(request) for _ in range(2)]
        await until(one_runs_and_one_waits)
        for invocation in invocations:
            invocation.cancel()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"engine_args": {"stream_interval": 0}}, "stream_interval: "),
        ({"max_model_len": 9999}, "9999.*8192"),
    ],
)
def test_invalid_options_are_named(tiny_llama: Path, options: dict[str, object], reason: str) -> None:
    settings.prepare_environment()
    from cornserve_executors.llm.engine import LLMEngine

    task = LLMTask(model_id=str(tiny_llama), options=EngineOptions.model_validate(options))

    with pytest.raises(ExecutorStartError, match=reason):
        LLMEngine(task)


@pytest.mark.slow
def test_a_thinker_whose_states_are_read_does_not_speculate() -> None:
    settings.prepare_environment()
    from cornserve_executors.llm.engine import LLMEngine

    options = EngineOptions(engine_args={"speculative_config": {"method": "ngram", "num_speculative_tokens": 2}})

    with pytest.raises(ExecutorStartError, match="speculative_config: the talker of this model"):
        LLMEngine(ThinkerTask(model_id=str(tiny_model("qwen25omni")), options=options))
