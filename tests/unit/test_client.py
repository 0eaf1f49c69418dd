from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cornserve import Client
from cornserve.app.record import AppSpec, Phase
from cornserve.client import ApiError, DisconnectedError, Item, Result, UnreachableError
from cornserve.home import Home
from cornserve.instance import Instance
from tests.unit.http_server import Answer, Server, json_answer, serving, sse_answer

HELLO = [{"role": "user", "content": "Hello!"}]


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.url) as client:
        yield client


def view(*, version: int = 1, generation: int = 1, phase: Phase = Phase.PENDING, of: int = 1) -> dict[str, Any]:
    status = {"phase": phase, "generation": of}
    spec = {"model": "/models/x"}
    return {"name": "a", "uid": "u", "generation": generation, "version": version, "spec": spec, "status": status}


def test_a_deployment_sends_only_what_was_chosen(server: Server, client: Client) -> None:
    server.on("PUT /admin/v1/apps/a", json_answer(view()))
    assert client.deploy("a", AppSpec(model="/models/x")).name == "a"
    assert server.asked == [("PUT /admin/v1/apps/a", {"model": "/models/x"})]


def test_the_phase_is_that_of_the_generation_that_was_deployed(server: Server, client: Client) -> None:
    server.on("GET /admin/v1/apps/a", json_answer(view(generation=2, phase=Phase.SERVING, of=1)))
    assert client.app("a").phase is Phase.PENDING
    assert not client.app("a").settled


def test_a_refusal_has_all_that_the_gateway_says(server: Server, client: Client) -> None:
    error = {"message": "missing field: 'text'", "type": "invalid_request_error", "param": "text", "code": "missing"}
    server.on("POST /v1/apps/a/invoke", json_answer({"error": error}, 400))
    with pytest.raises(ApiError, match="missing field: 'text'") as caught:
        client.invoke("a", {})
    assert (caught.value.status, caught.value.param, caught.value.code) == (400, "text", "missing")


def test_an_error_of_something_else_is_quoted(server: Server, client: Client) -> None:
    server.on("GET /admin/v1/apps", Answer(b"<h1>Bad gateway</h1>", 502, "text/html"))
    with pytest.raises(ApiError, match="HTTP status 502: <h1>Bad gateway</h1>"):
        client.apps()


def test_an_answer_that_is_no_json_is_not_a_gateways(server: Server, client: Client) -> None:
    server.on("GET /admin/v1/apps", Answer(b"<h1>Hello</h1>", type="text/html"))
    with pytest.raises(ApiError, match="does not answer like a Cornserve gateway"):
        client.apps()


def test_where_nothing_listens_the_error_says_what_to_do() -> None:
    with serving() as gone:
        pass
    with Client(gone.url) as client, pytest.raises(UnreachableError, match=f"no Cornserve at {gone.url}: start one"):
        client.apps()


def test_the_api_key_is_sent(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORNSERVE_API_KEY", "secret")
    server.on("GET /admin/v1/apps", json_answer({"apps": []}))
    with Client(server.url) as client:
        assert client.apps() == []
    assert server.headers[0]["Authorization"] == "Bearer secret"


def test_a_proxy_is_not_asked_for_this_machine(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    server.on("GET /admin/v1/apps", json_answer({"apps": []}))
    with Client(server.url) as client:
        assert client.apps() == []


def test_the_address_is_that_of_the_instance_of_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CORNSERVE_URL", raising=False)
    monkeypatch.setenv("CORNSERVE_HOME", str(tmp_path))
    with Client() as client:
        assert client.url == "http://127.0.0.1:8000"
    Instance.of_this_process("http://127.0.0.1:4711").record(Home(tmp_path))
    with Client() as client:
        assert client.url == "http://127.0.0.1:4711"
    monkeypatch.setenv("CORNSERVE_URL", "http://elsewhere:1/")
    with Client() as client:
        assert client.url == "http://elsewhere:1"


def test_items_come_before_the_result(server: Server, client: Client) -> None:
    items = [("item", {"stream": "words", "item": word}) for word in ("one", "two")]
    server.on("POST /v1/apps/a/invoke", sse_answer(*items, ("result", {"text": "one two"})))
    received = list(client.stream("a", {"text": "x"}))
    assert received == [Item("words", "one"), Item("words", "two"), Result({"text": "one two"})]


def test_an_error_within_a_stream_is_raised(server: Server, client: Client) -> None:
    failed = ("error", {"error": {"message": "the engine died", "code": "unavailable"}})
    server.on("POST /v1/apps/a/invoke", sse_answer(("item", {"stream": "words", "item": "one"}), failed))
    stream = client.stream("a", {})
    assert next(stream) == Item("words", "one")
    with pytest.raises(ApiError, match="the engine died"):
        next(stream)


@pytest.mark.parametrize("cut", [True, False])
def test_a_stream_that_breaks_is_no_answer(server: Server, client: Client, cut: bool) -> None:
    server.on("POST /v1/apps/a/invoke", sse_answer(("item", {"stream": "words", "item": "one"}), cut=cut))
    with pytest.raises(DisconnectedError):
        list(client.stream("a", {}))


def test_a_chat_comes_in_pieces(server: Server, client: Client) -> None:
    chunks = (f'data: {{"choices": [{{"delta": {{"content": "{text}"}}}}]}}\n\n' for text in ("Hel", "", "lo"))
    body = "".join([": still here\n\n", *chunks, "data: [DONE]\n\n"])
    server.on("POST /v1/chat/completions", Answer(body.encode(), type="text/event-stream"))
    assert list(client.chat("a", HELLO, max_tokens=5)) == ["Hel", "lo"]
    assert server.asked[0][1] == {"model": "a", "messages": HELLO, "stream": True, "max_tokens": 5}


def test_events_go_on_where_the_connection_broke(server: Server, client: Client) -> None:
    server.on("GET /v1/models", json_answer({"data": [{"id": "a"}]}))
    server.on(
        "GET /admin/v1/apps/a/events",
        sse_answer(("put", view(version=1)), cut=True),
        sse_answer(("put", view(version=1)), ("put", view(version=2, phase=Phase.SERVING))),
        sse_answer(("deleted", view(version=3))),
    )
    assert [app.version for app in client.events("a")] == [1, 2]


def test_an_app_that_is_said_to_serve_is_one_that_the_gateway_has_loaded(server: Server, client: Client) -> None:
    server.on("GET /admin/v1/apps/a/events", sse_answer(("put", view(phase=Phase.SERVING))))
    server.on(
        "GET /v1/models", json_answer({"data": []}), json_answer({"data": []}), json_answer({"data": [{"id": "a"}]})
    )
    assert next(client.events("a")).phase is Phase.SERVING
    assert [call for call, _ in server.asked].count("GET /v1/models") == 3


def test_events_of_an_app_that_is_not_there_are_an_error(client: Client) -> None:
    with pytest.raises(ApiError) as caught:
        next(client.events("a"))
    assert caught.value.status == 404


def test_events_end_in_time(server: Server, client: Client) -> None:
    server.on("GET /admin/v1/apps/a/events", sse_answer(("put", view())))
    with pytest.raises(TimeoutError):
        list(client.events("a", timeout=0.2))
