"""Every response has the id of its request, and an id that a client sends again takes the same route."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import anthropic
import httpx2 as httpx
import pytest
import pytest_asyncio

from cornserve.gateway.http.request_id import RequestId, RequestIds
from cornserve.limits import MIB, Limits
from cornserve.observe import logs
from tests.loop_clock import LoopClock
from tests.unit.echo_executors import EchoExecutors
from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.raw_http import RawResponse, get, post, raw_connection
from tests.unit.gateway.running_gateway import GatewayOptions
from tests.unit.gateway.sources import CHAT, ECHO, RELAY
from tests.waiting import until

HEADER = "x-request-id"
MINE = "mine/2026-11-27.a:b_c~d+e=@"

DRAWS = """
from cornserve import App, Task, replayable_choice
from cornserve_echo import EchoRequest, EchoResponse, EchoTask

class Left(Task[EchoRequest, EchoResponse]):
    def post_init(self) -> None:
        self.echo = EchoTask()

    def invoke(self, request: EchoRequest) -> EchoResponse:
        return self.echo.invoke(EchoRequest(text=f"{self.name} {replayable_choice(10_000)}"))

class Right(Left):
    pass

app = App(name="draws", paths=[Left(), Right()], shares=[1, 1])
"""


@pytest.fixture(scope="module")
def gateway_options() -> GatewayOptions:
    return GatewayOptions(Limits(body_mib=1, receive_seconds=1))


@pytest_asyncio.fixture(scope="module", autouse=True, loop_scope="module")
async def apps(deploy_for_module: Deploy) -> None:
    for source in (ECHO, CHAT, RELAY, DRAWS):
        await deploy_for_module(source)


CHAT_BODY: Any = {"model": "parrot", "messages": [{"role": "user", "content": "hi"}]}
REQUESTS: list[tuple[str, str, Any, int]] = [
    ("GET", "/v1/models", None, 200),
    ("HEAD", "/v1/models", None, 200),
    ("GET", "/v1/models/none", None, 404),
    ("GET", "/v1/none", None, 404),
    ("DELETE", "/v1/models", None, 405),
    ("POST", "/v1/chat/completions", CHAT_BODY, 200),
    ("POST", "/v1/chat/completions", CHAT_BODY | {"stream": True}, 200),
    ("POST", "/v1/chat/completions", CHAT_BODY | {"banana": 1}, 400),
    ("POST", "/v1/chat/completions", CHAT_BODY | {"model": "none"}, 404),
    ("POST", "/v1/chat/completions", CHAT_BODY | {"user": "x" * MIB}, 413),
    ("POST", "/v1/responses", {}, 400),
    ("POST", "/v1/audio/transcriptions", {}, 415),
    ("POST", "/v1/apps/echo/invoke", {"text": "a"}, 200),
    ("POST", "/v1/apps/echo/invoke", {"text": "a", "fail": "boom"}, 500),
    ("PUT", "/admin/v1/apps/echo", {"banana": 1}, 400),
    ("GET", "/admin/v1/apps", None, 200),
    ("GET", "/admin/v1/apps/echo/logs?lines=x", None, 400),
    ("GET", "/internal/v1/arrivals", None, 403),
    ("GET", "/healthz", None, 200),
    ("GET", "/readyz", None, 200),
    ("GET", "/metrics", None, 200),
    ("GET", "/openapi.json", None, 200),
]


@pytest.mark.parametrize(("method", "path", "body", "status"), REQUESTS)
async def test_every_response_has_the_id_of_its_request(
    gateway: httpx.AsyncClient, method: str, path: str, body: Any, status: int
) -> None:
    named = await gateway.request(method, path, json=body, headers={HEADER: MINE})
    unnamed = await gateway.request(method, path, json=body)

    assert (named.status_code, unnamed.status_code) == (status, status)
    assert named.headers.get_list(HEADER) == [MINE]
    assert len(unnamed.headers[HEADER]) == 32


async def test_a_connection_ends_with_the_id_of_the_request_that_is_not_valid(gateway: httpx.AsyncClient) -> None:
    mine = f"X-Request-ID: {MINE}"

    assert _id(await _response(gateway, get("/v1/models", mine, "Host: twice"))) == (400, MINE.lower())
    assert _id(await _response(gateway, b"not HTTP\r\n\r\n")) == (400, "")
    for headers in [(mine, "Host: twice"), (mine, "no header")]:
        invalid = await _response(gateway, get("/v1/messages", *headers))
        assert (invalid.status, invalid.headers["request-id"]) == (400, invalid.headers[HEADER])
        assert json.loads(invalid.body)["type"] == "error"
    late = await _response(gateway, post("/v1/messages", mine, "Content-Length: 9") + b"{")
    assert _id(late) == (408, MINE.lower())
    assert late.headers["request-id"] == MINE.lower()
    assert MINE.encode() in late.body


async def _response(gateway: httpx.AsyncClient, data: bytes) -> RawResponse:
    async with raw_connection(gateway) as connection:
        await connection.send(data)
        return await connection.read_response()


def _id(response: RawResponse) -> tuple[int, str]:
    """Returns the status and the id, or an empty text for a fresh one."""
    id = response.headers[HEADER]
    return response.status, "" if len(id) == 32 else id


@pytest.mark.parametrize("given", ["", "a" * 129, "two words", 'a"b', "a,b", "ü", "a\tb", "$(reboot)"])
async def test_an_id_that_is_not_well_formed_is_replaced(gateway: httpx.AsyncClient, given: str) -> None:
    response = await gateway.get("/v1/models", headers={HEADER.encode(): given.encode()})

    assert response.status_code == 200
    assert len(response.headers[HEADER]) == 32


async def test_two_ids_are_replaced(gateway: httpx.AsyncClient) -> None:
    response = await gateway.get("/v1/models", headers=[(HEADER, "a"), (HEADER, "b")])

    assert response.headers[HEADER] not in ("a", "b")


async def test_an_id_that_is_sent_again_takes_the_same_route(gateway: httpx.AsyncClient) -> None:
    async def route(**headers: str) -> tuple[str, str]:
        """Returns the path and the random choice, and the id."""
        response = await gateway.post("/v1/apps/draws/invoke", json={"text": ""}, headers=headers)
        return response.json()["text"], response.headers[HEADER]

    for number in range(20):
        id = f"client-{number}"
        assert await route(**{HEADER: id}) == await route(**{HEADER: id})
        fresh = await route()
        assert await route(**{HEADER: fresh[1]}) == fresh
    chosen = {(await route(**{HEADER: f"other-{number}"}))[0] for number in range(20)}
    assert len(chosen) == 20
    assert {path.split()[0] for path in chosen} == {"Left", "Right"}


def test_choices_depend_on_the_secret_of_the_instance() -> None:
    id = RequestId("mine", is_fresh=False)

    keys = {RequestIds.of(id, draw_key).random_key for draw_key in (b"", b"a", b"a", b"b")}

    assert len(keys) == 3
    assert "mine" not in keys


async def test_concurrent_requests_with_one_id_are_different_requests(
    gateway: httpx.AsyncClient, deploy: Deploy, executors: EchoExecutors, clock: LoopClock
) -> None:
    await deploy(ECHO.replace('"echo"', '"slow"'))

    async def send(text: str) -> httpx.Response:
        body = {"text": text, "seconds": 1}
        return await gateway.post("/v1/apps/slow/invoke", json=body, headers={HEADER: MINE})

    requests = [asyncio.create_task(send(text)) for text in ("a b", "c d")]
    await until(lambda: executors.running() == 2)
    await clock.advance_until(lambda: executors.running() == 0, step=0.5, at_most=1)

    responses = await asyncio.gather(*requests)
    assert [(response.status_code, response.headers[HEADER]) for response in responses] == [(200, MINE)] * 2
    assert [response.json()["text"] for response in responses] == ["a b", "c d"]
    chats = [await gateway.post("/v1/chat/completions", json=CHAT_BODY, headers={HEADER: MINE}) for _ in range(2)]
    assert len({chat.json()["id"] for chat in chats}) == 2


async def test_anthropics_client_reads_the_id_of_responses_and_errors(gateway: httpx.AsyncClient) -> None:
    client = anthropic.AsyncAnthropic(
        base_url=str(gateway.base_url),
        api_key="none",
        max_retries=0,
        http_client=gateway,
        default_headers={HEADER: MINE},
    )
    hello: Any = {"model": "relay", "max_tokens": 40, "messages": [{"role": "user", "content": "hi"}]}

    message = await client.messages.create(**hello)
    assert message._request_id == MINE
    async with client.messages.stream(**hello) as stream:
        assert stream.request_id == MINE
    invalid: list[dict[str, Any]] = [{"model": "none"}, {"banana": 1}, {"messages": []}]
    for changed in invalid:
        with pytest.raises(anthropic.APIStatusError) as caught:
            await client.post("/v1/messages", body=hello | changed, cast_to=object)
        assert caught.value.request_id == MINE
        assert isinstance(caught.value.body, dict)
        assert caught.value.body["request_id"] == MINE


async def test_lines_of_the_log_have_the_id(gateway: httpx.AsyncClient, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "cornserve.access")
    lines: list[str] = []
    handler = logs.handler()
    handler.emit = lambda record: lines.append(handler.format(record))  # type: ignore[method-assign]
    logging.getLogger("cornserve.access").addHandler(handler)
    try:
        await gateway.post("/v1/apps/echo/invoke", json={"text": "a"}, headers={HEADER: MINE})
    finally:
        logging.getLogger("cornserve.access").removeHandler(handler)

    (line,) = lines
    assert f'request_id="{MINE}"' in line
    assert "app=echo" in line
