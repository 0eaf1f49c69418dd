"""A decode executor that leaves hands its responses over with their KV cache."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from cornserve.v1 import executor_pb2 as pb
from cornserve_tasklib import DecodeTask, EngineOptions
from tests.integration.engine_pool import EnginePool
from tests.integration.llm.client import ClientInvocation, ExecutorClient, connected
from tests.integration.llm.conftest import CONTEXT
from tests.integration.llm.process import ExecutorProcess
from tests.integration.llm.test_chat import ask
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest_asyncio.fixture(loop_scope="session")
async def decoder(executors: EnginePool[ExecutorProcess], tiny_llama: Path) -> ExecutorProcess:
    options = EngineOptions(max_model_len=CONTEXT, kv_cache_memory_bytes=64 << 20)
    return await executors.engine(DecodeTask(model_id=str(tiny_llama), options=options))


@pytest.fixture
async def decoding(decoder: ExecutorProcess) -> AsyncIterator[ExecutorClient]:
    async with connected(decoder.endpoint) as client:
        yield client


def _request(salt: str, kv: str = "null") -> bytes:
    """Returns a request with a long prompt, which requests with other salts do not find in the prefix cache.

    Args:
        kv: the reference to the KV cache of the prompt.
    """
    request = ask("corn " * 60, max_tokens=300, ignore_eos=True, cache_salt=salt)
    return b'{"request": %s, "kv": %s}' % (request.model_dump_json(exclude_defaults=True).encode(), kv.encode())


async def _resumed(client: ExecutorClient, salt: str, leaving: ClientInvocation) -> ClientInvocation:
    """Continues a response whose KV cache of the prompt has been taken by the decode executor that leaves."""
    moved = await leaving.reply()
    kv = pb.Input(pending=leaving.output("kv"))
    request = _request(salt, '{"$input": 0}')
    return await client.start(request, delivered=moved.chunks, state_of=leaving, inputs=[kv])


async def _left(client: ExecutorClient, salt: str) -> ClientInvocation:
    invocation = await client.start(_request(salt))
    await invocation.first_chunk()
    invocation.hand_over()
    return invocation


async def test_the_kv_cache_of_prompt_and_response_continues_a_response(
    decoding: ExecutorClient, decoder: ExecutorProcess
) -> None:
    complete = await decoding.invoke(_request("undisturbed"))

    leaving = await _left(decoding, "leaving")
    rest = await (await _resumed(decoding, "other", leaving)).reply()

    assert (await leaving.reply()).code == "HANDED_OVER"
    assert rest.taken == [1]
    assert rest.response == complete.response
    leaving.release()
    await until(lambda: _holds_nothing(decoder))


async def test_without_the_kv_cache_the_prompt_is_processed_again_by_prefill(
    decoding: ExecutorClient, decoder: ExecutorProcess
) -> None:
    leaving = await _left(decoding, "lost")
    await leaving.reply()
    leaving.release()
    await until(lambda: _holds_nothing(decoder))

    rest = await (await _resumed(decoding, "another", leaving)).reply()

    assert rest.code == "INPUT_LOST"
    assert rest.end.lost_inputs == [0]


async def _holds_nothing(decoder: ExecutorProcess) -> bool:
    return not await decoder.held_bytes()
