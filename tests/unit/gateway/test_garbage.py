"""What a request took is free as soon as it is answered: nobody waits for the garbage collector."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from typing import Any

import httpx2 as httpx
import pytest

from cornserve.gateway.endpoints.openai.chat import ChatCompletionRequest
from cornserve.gateway.endpoints.request_handler import RequestHandler
from cornserve.gateway.request.dispatcher import Dispatcher
from cornserve.gateway.request.session import Session
from cornserve.gateway.request.stream_buffer import StreamBuffer
from cornserve.task.recording import Invocation, Recording
from tests.unit.echo_executors import EchoExecutors
from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.metrics import exposes
from tests.unit.gateway.pictures import data_url, picture
from tests.unit.gateway.raw_http import post, raw
from tests.unit.gateway.sources import ECHO, READER, SEER
from tests.waiting import until

_OF_A_REQUEST = (RequestHandler, ChatCompletionRequest, Session, Dispatcher, Recording, Invocation, StreamBuffer)
IMAGE = data_url(picture())


@pytest.fixture
def others() -> Iterator[list[Any]]:
    """What other tests have left. From here on, nothing is collected."""
    gc.collect()
    gc.disable()
    yield _left()
    gc.enable()


def _left() -> list[Any]:
    # Not isinstance: it asks objects for their class, of which some that other tests have loaded warn.
    return [it for it in gc.get_objects() if type(it) in _OF_A_REQUEST]


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answered_request_leaves_no_circles(
    others: list[Any], gateway: httpx.AsyncClient, deploy: Deploy, stream: bool
) -> None:
    await deploy(READER)
    message = {"role": "user", "content": "one two three"}

    answer = await gateway.post(
        "/v1/chat/completions", json={"model": "reader", "messages": [message], "stream": stream}
    )

    assert answer.status_code == 200
    await _nothing_is_left_but(others)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("urls", "fields", "headers"),
    [
        ([IMAGE, f"{IMAGE[:-5]}*****"], {}, {}),
        ([IMAGE, "data:image/png;base64,AAAA"], {}, {}),
        ([IMAGE, "http://10.0.0.1/"], {}, {}),
        ([IMAGE], {"seed": 3}, {}),
        ([IMAGE], {"temperature": "high"}, {}),
        ([IMAGE], {}, {"x-request-timeout": "0.00001"}),
    ],
    ids=["broken base64", "no image", "host is not allowed", "unused field", "wrong field", "too late"],
)
async def test_a_request_that_fails_leaves_none_either(
    others: list[Any],
    gateway: httpx.AsyncClient,
    deploy: Deploy,
    urls: list[str],
    fields: dict[str, Any],
    headers: dict[str, str],
    stream: bool,
) -> None:
    await deploy(SEER)
    content = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    body = {"model": "seer", "messages": [{"role": "user", "content": content}], "stream": stream, **fields}

    answer = await gateway.post("/v1/chat/completions", json=body, headers=headers)

    assert answer.status_code in (400, 503, 504)
    await _nothing_is_left_but(others)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("asked", "headers"),
    [({"text": "a", "fail": "boom"}, {}), ({"text": "a b", "seconds": 100}, {"x-request-timeout": "0.1"})],
    ids=["an executor's error", "a deadline while it runs"],
)
async def test_a_request_that_fails_at_its_executor_leaves_none_either(
    others: list[Any],
    gateway: httpx.AsyncClient,
    deploy: Deploy,
    asked: dict[str, Any],
    headers: dict[str, str],
    stream: bool,
) -> None:
    await deploy(ECHO)

    answer = await gateway.post("/v1/apps/echo/invoke", json=asked, headers=headers | _accepting(stream))

    assert answer.status_code >= 500 or "event: error" in answer.text
    await _nothing_is_left_but(others)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_leaves_none_either(
    others: list[Any], gateway: httpx.AsyncClient, deploy: Deploy, executors: EchoExecutors, stream: bool
) -> None:
    await deploy(ECHO)
    asked = {"text": "a b", "seconds": 100}
    asking = asyncio.create_task(gateway.post("/v1/apps/echo/invoke", json=asked, headers=_accepting(stream)))
    await until(lambda: executors.running() == 1)

    asking.cancel()

    await until(lambda: executors.running() == 0)
    await _nothing_is_left_but(others)


async def test_a_client_that_leaves_as_soon_as_it_has_asked_leaves_none_either(
    others: list[Any], gateway: httpx.AsyncClient, deploy: Deploy
) -> None:
    await deploy(READER)
    body = b'{"model": "reader", "messages": [{"role": "user", "content": "a b"}]}'
    async with raw(gateway) as connection:
        await connection.send(post("/v1/chat/completions", f"Content-Length: {len(body)}") + body)

    await until(lambda: exposes(gateway, 'cornserve_gateway_requests_total{app="reader"'))
    await _nothing_is_left_but(others)


def _accepting(stream: bool) -> dict[str, str]:
    return {"accept": "text/event-stream" if stream else "application/json"}


async def _nothing_is_left_but(others: list[Any]) -> None:
    await until(lambda: all(any(it is other for other in others) for it in _left()))
