"""A finished request leaves no objects to the garbage collector."""

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
from cornserve.gateway.task_runs.hosted_invocation import HostedInvocation
from cornserve.gateway.task_runs.hosted_runner import HostedRunner
from cornserve.gateway.task_runs.stream_buffer import StreamBuffer
from cornserve.task.recording import Invocation, Recording
from tests.unit.echo_executors import EchoExecutors
from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.image_files import data_url, image_file
from tests.unit.gateway.metrics import exposes
from tests.unit.gateway.raw_http import post, raw_connection
from tests.unit.gateway.sources import ECHO, READER, SEER
from tests.waiting import until

_REQUEST_TYPES = (
    RequestHandler,
    ChatCompletionRequest,
    Session,
    Dispatcher,
    Recording,
    Invocation,
    HostedRunner,
    HostedInvocation,
    StreamBuffer,
)
IMAGE = data_url(image_file())


@pytest.fixture(scope="module", autouse=True)
def older_objects_are_hidden() -> None:
    """Hides the objects of other modules from the garbage collector, which would visit all of them for each test."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def existing() -> Iterator[list[Any]]:
    """Disables garbage collection, and returns the objects that other tests of the module have left."""
    gc.collect()
    gc.disable()
    yield _request_objects()
    gc.enable()


def _request_objects() -> list[Any]:
    # isinstance() would read __class__, which makes some objects of other tests warn.
    return [candidate for candidate in gc.get_objects() if type(candidate) in _REQUEST_TYPES]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_finished_request_leaves_no_reference_cycles(
    existing: list[Any], gateway: httpx.AsyncClient, deploy: Deploy, stream: bool
) -> None:
    await deploy(READER)
    message = {"role": "user", "content": "one two three"}

    response = await gateway.post(
        "/v1/chat/completions", json={"model": "reader", "messages": [message], "stream": stream}
    )

    assert response.status_code == 200
    await _assert_no_new_objects(existing)


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
    ids=["invalid base64", "not an image", "host not allowed", "unused field", "invalid value", "too late"],
)
async def test_a_failed_request_leaves_no_reference_cycles(
    existing: list[Any],
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

    response = await gateway.post("/v1/chat/completions", json=body, headers=headers)

    assert response.status_code in (400, 503, 504)
    await _assert_no_new_objects(existing)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("body", "headers"),
    [({"text": "a", "fail": "boom"}, {}), ({"text": "a b", "seconds": 100}, {"x-request-timeout": "0.1"})],
    ids=["executor error", "deadline"],
)
async def test_an_executor_failure_leaves_no_reference_cycles(
    existing: list[Any],
    gateway: httpx.AsyncClient,
    deploy: Deploy,
    body: dict[str, Any],
    headers: dict[str, str],
    stream: bool,
) -> None:
    await deploy(ECHO)

    response = await gateway.post("/v1/apps/echo/invoke", json=body, headers=headers | _accepting(stream))

    assert response.status_code >= 500 or "event: error" in response.text
    await _assert_no_new_objects(existing)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_disconnect_leaves_no_reference_cycles(
    existing: list[Any], gateway: httpx.AsyncClient, deploy: Deploy, executors: EchoExecutors, stream: bool
) -> None:
    await deploy(ECHO)
    body = {"text": "a b", "seconds": 100}
    request = asyncio.create_task(gateway.post("/v1/apps/echo/invoke", json=body, headers=_accepting(stream)))
    await until(lambda: executors.running() == 1)

    request.cancel()

    await until(lambda: executors.running() == 0)
    await _assert_no_new_objects(existing)


async def test_an_immediate_disconnect_leaves_no_reference_cycles(
    existing: list[Any], gateway: httpx.AsyncClient, deploy: Deploy
) -> None:
    await deploy(READER)
    body = b'{"model": "reader", "messages": [{"role": "user", "content": "a b"}]}'
    async with raw_connection(gateway) as connection:
        await connection.send(post("/v1/chat/completions", f"Content-Length: {len(body)}") + body)

    await until(lambda: exposes(gateway, 'cornserve_gateway_requests_total{app="reader"'))
    await _assert_no_new_objects(existing)


def _accepting(stream: bool) -> dict[str, str]:
    return {"accept": "text/event-stream" if stream else "application/json"}


async def _assert_no_new_objects(existing: list[Any]) -> None:
    await until(lambda: all(any(found is known for known in existing) for found in _request_objects()))
