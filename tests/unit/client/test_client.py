from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cornserve import AsyncClient, Client
from cornserve.app.record import AppSpec, Phase
from cornserve.client import (
    ApiError,
    ArgumentError,
    ClientError,
    ClosedError,
    DeletedError,
    DeploymentError,
    DisconnectedError,
    Item,
    LoopError,
    NotInTimeError,
    Result,
    StrangerError,
    UnreachableError,
)
from cornserve.home import Home
from cornserve.instance import Instance
from tests.unit.client.blocking import Blocking
from tests.unit.http_server import Answer, Server, json_answer, serving, sse_answer

HELLO = [{"role": "user", "content": "Hello!"}]


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.fixture(params=[Client, Blocking])
def client(request: pytest.FixtureRequest, server: Server) -> Iterator[Client]:
    """Both clients: `Blocking` makes the asynchronous one look like the other."""
    with request.param(server.url) as client:
        yield client


def view(*, version: int = 1, generation: int = 1, phase: Phase = Phase.PENDING, of: int = 1) -> dict[str, Any]:
    status = {"phase": phase, "generation": of}
    spec = {"model": "/models/x"}
    return {"name": "a", "uid": "u", "generation": generation, "version": version, "spec": spec, "status": status}


def models(*generations: int, uid: str = "u") -> Answer:
    return json_answer({"data": [{"id": "a", "uid": uid, "generation": it} for it in generations]})


def test_a_deployment_sends_only_what_was_chosen(server: Server, client: Client) -> None:
    server.on("PUT /admin/v1/apps/a", json_answer(view()))
    assert client.deploy(AppSpec(model="/models/x"), name="a", wait=False).name == "a"
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


@pytest.mark.parametrize("body", [b"<h1>Hello</h1>", b"[]", b'{"apps": [{}]}'])
def test_an_answer_of_another_kind_is_not_a_gateways(server: Server, client: Client, body: bytes) -> None:
    server.on("GET /admin/v1/apps", Answer(body))
    with pytest.raises(StrangerError, match="does not answer like a Cornserve gateway"):
        client.apps()


@pytest.mark.parametrize("kind", [Client, Blocking])
def test_where_nothing_listens_the_error_says_what_to_do(kind: type[Client]) -> None:
    with serving() as gone:
        pass
    with kind(gone.url) as client, pytest.raises(UnreachableError, match=f"no Cornserve at {gone.url}: start one"):
        client.apps()


def test_what_only_asks_is_asked_again_where_the_connection_broke(server: Server, client: Client) -> None:
    server.on("GET /admin/v1/apps", Answer(b"{", cut=True), Answer(b"{", cut=True), json_answer({"apps": []}))
    assert client.apps() == []


def test_what_does_something_is_not_done_twice(server: Server, client: Client) -> None:
    server.on("POST /v1/apps/a/invoke", Answer(b"{", cut=True), json_answer({}))
    with pytest.raises(DisconnectedError):
        client.invoke("a", {})
    assert len(server.asked) == 1


def test_a_time_limit_is_the_gateways_to_keep(server: Server, client: Client) -> None:
    server.on("POST /v1/apps/a/invoke", json_answer({"error": {"message": "too late"}}, 504))
    with pytest.raises(ApiError, match="too late"):
        client.invoke("a", {}, timeout=1.5)
    assert server.headers[0]["X-Request-Timeout"] == "1.5"


def test_the_api_key_is_sent(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORNSERVE_API_KEY", "secret")
    server.on("GET /admin/v1/apps", json_answer({"apps": []}))
    with Client(server.url) as client:
        assert client.apps() == []
    assert server.headers[0]["Authorization"] == "Bearer secret"


@pytest.mark.parametrize(("token", "sent"), [(None, "Bearer key"), ("token", "Bearer token")])
def test_the_admin_token_is_only_for_the_administration(server: Server, token: str | None, sent: str) -> None:
    server.on("GET /admin/v1/apps", json_answer({"apps": []}))
    server.on("GET /v1/models", models())
    with Client(server.url, "key", token) as client:
        client.apps()
        client.models()
    assert [headers["Authorization"] for headers in server.headers] == [sent, "Bearer key"]


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
    Instance.of_current_process("http://127.0.0.1:4711").write(Home(tmp_path))
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


@pytest.mark.parametrize("data", ["{", '"unfinished', "<h1>"])
def test_a_stream_of_another_kind_is_not_a_gateways(server: Server, client: Client, data: str) -> None:
    nonsense = Answer(f"event: put\ndata: {data}\n\n".encode(), type="text/event-stream")
    for call in ("POST /v1/apps/a/invoke", "POST /v1/chat/completions", "GET /admin/v1/apps/a/events"):
        server.on(call, nonsense)
    for stream in (client.stream("a", {}), client.chat("a", HELLO), client.events("a")):
        with pytest.raises(StrangerError):
            next(stream)


def test_a_chat_comes_in_pieces(server: Server, client: Client) -> None:
    chunks = (f'data: {{"choices": [{{"delta": {{"content": "{text}"}}}}]}}\n\n' for text in ("Hel", "", "lo"))
    body = "".join([": still here\n\n", *chunks, "data: [DONE]\n\n"])
    server.on("POST /v1/chat/completions", Answer(body.encode(), type="text/event-stream"))
    assert list(client.chat("a", HELLO, max_tokens=5)) == ["Hel", "lo"]
    assert server.asked[0][1] == {"model": "a", "messages": HELLO, "stream": True, "max_tokens": 5}


def test_events_go_on_where_the_connection_broke(server: Server, client: Client) -> None:
    server.on("GET /v1/models", models(1))
    server.on(
        "GET /admin/v1/apps/a/events",
        sse_answer(("put", view(version=1)), cut=True),
        sse_answer(("put", view(version=1)), ("put", view(version=2, phase=Phase.SERVING))),
        sse_answer(("deleted", view(version=3))),
    )
    assert [app.version for app in client.events("a")] == [1, 2]


@pytest.mark.parametrize("kind", [Client, Blocking])
@pytest.mark.parametrize(
    ("patience", "end"), [(60.0, NotInTimeError), (0.1, UnreachableError)], ids=["for a moment", "for good"]
)
def test_events_outlast_a_gateway_that_is_away_for_a_moment(
    monkeypatch: pytest.MonkeyPatch, kind: type[Client], patience: float, end: type[Exception]
) -> None:
    monkeypatch.setattr("cornserve.client.watch.RESTART_SECONDS", patience)
    with serving() as gateway:
        gateway.on("GET /admin/v1/apps/a/events", sse_answer(("put", view()), cut=True))
        client = kind(gateway.url, retries=0)
        events = client.events("a", timeout=0.5)
        next(events)
    with client, pytest.raises(end):
        next(events)


def test_an_app_that_is_said_to_serve_is_one_that_the_gateway_has_loaded(server: Server, client: Client) -> None:
    server.on("GET /admin/v1/apps/a/events", sse_answer(("put", view(generation=2, phase=Phase.SERVING, of=2))))
    server.on("GET /v1/models", models(), models(1), models(2, uid="another"), models(2))
    assert next(client.events("a")).phase is Phase.SERVING
    assert [call for call, _ in server.asked].count("GET /v1/models") == 4


def test_an_app_may_take_as_long_to_load_as_to_be_accepted(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = count(step=10)
    monkeypatch.setattr("cornserve.client.deadline.time", SimpleNamespace(monotonic=lambda: next(seconds)))
    server.on("GET /admin/v1/apps/a/events", sse_answer(("put", view(phase=Phase.SERVING))))
    server.on("GET /v1/models", models(), models(), models(1))
    assert next(client.events("a")).phase is Phase.SERVING


def test_events_of_an_app_that_is_not_there_are_an_error(client: Client) -> None:
    with pytest.raises(ApiError) as caught:
        next(client.events("a"))
    assert caught.value.status == 404


def test_events_end_in_time(server: Server, client: Client) -> None:
    server.on("GET /admin/v1/apps/a/events", sse_answer(("put", view())))
    with pytest.raises(TimeoutError):
        list(client.events("a", timeout=0.2))


def test_a_deployment_is_waited_for_and_told(server: Server, client: Client) -> None:
    busy = {"key": "echo", "wanted": 1, "replicas": [{"id": "echo-1", "state": "starting", "message": "thinking"}]}
    starting = view(generation=2, phase=Phase.STARTING, of=2)
    starting["status"]["groups"] = [busy]
    server.on("PUT /admin/v1/apps/a", json_answer(view(generation=2)))
    server.on(
        "GET /admin/v1/apps/a/events",
        sse_answer(
            ("put", view(generation=1, phase=Phase.SERVING)),
            ("put", starting | {"version": 2}),
            ("put", view(version=3, generation=2, phase=Phase.SERVING, of=2)),
        ),
    )
    server.on("GET /v1/models", models(2))
    said: list[str] = []
    assert client.deploy(AppSpec(model="/models/x"), name="a", on_progress=said.append).version == 3
    assert said == ["echo-1: thinking"]


def test_a_deployment_that_fails_has_its_reason_and_what_the_executor_wrote(server: Server, client: Client) -> None:
    failed = view(phase=Phase.FAILED)
    failed["status"] |= {"message": "out of memory", "logs": ["one", "two"]}
    server.on("PUT /admin/v1/apps/a", json_answer(view()))
    server.on("GET /admin/v1/apps/a/events", sse_answer(("put", failed)))
    with pytest.raises(DeploymentError, match=r"a does not serve: out of memory\n  \| one\n  \| two"):
        client.deploy(AppSpec(model="/models/x"), name="a")


def test_a_name_that_is_another_apps_by_now_is_not_what_was_deployed(server: Server, client: Client) -> None:
    server.on("PUT /admin/v1/apps/a", json_answer(view()))
    server.on("GET /admin/v1/apps/a/events", sse_answer(("put", view() | {"uid": "another"})))
    with pytest.raises(DeletedError):
        client.deploy(AppSpec(model="/models/x"), name="a")


def test_a_chat_is_asked_for_in_pieces_or_whole_by_name_only(server: Server, client: Client) -> None:
    with pytest.raises(TypeError, match="`complete` gives it whole"):
        list(client.chat("a", [], stream=False))
    with pytest.raises(TypeError, match="`chat` gives an answer in pieces"):
        client.complete("a", [], stream=True)
    assert not server.asked


def test_a_closed_client_says_that_it_is(server: Server) -> None:
    with Client(server.url) as client:
        pass
    with pytest.raises(ClosedError, match="closed: make another"):
        client.models()


async def test_a_closed_asynchronous_client_says_that_it_is(server: Server) -> None:
    async with AsyncClient(server.url) as client:
        pass
    with pytest.raises(ClosedError):
        await client.models()


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize("how", ["argument", "environment"])
@pytest.mark.parametrize(
    "url",
    [
        "http://[::1",
        "http://x:port",
        "http://x:99999",
        "http://",
        "localhost:8000",
        "ftp://x",
        " http://x",
        "http://a..b",
        "http://\udcff",
        f"http://{'x' * 64}.de",
    ],
)
def test_an_address_that_is_none_is_refused_at_once(
    kind: type[Client | AsyncClient], how: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if how == "environment":
        monkeypatch.setenv("CORNSERVE_URL", url)
    with pytest.raises(ArgumentError, match=r"^url: .* is no address of a gateway") as caught:
        kind(url if how == "argument" else None)
    assert isinstance(caught.value, ClientError)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("url", ["http://[::1]:8000", "https://münchen.example/cornserve/", "HTTP://LOCALHOST:1"])
def test_an_address_may_be_of_every_kind(url: str) -> None:
    with Client(url) as client:
        assert client.url == url.rstrip("/")


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize("name", ["api_key", "admin_token"])
@pytest.mark.parametrize("secret", ["schlüssel", "a\nb", "key\n", " ", "\udcff"])
def test_a_secret_that_fits_in_no_header_is_refused_at_once(
    kind: Callable[..., object], name: str, secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ArgumentError, match=f"^{name}: has other characters than printable ASCII") as given:
        kind("http://x", **{name: secret})
    monkeypatch.setenv(f"CORNSERVE_{name.upper()}", secret)
    with pytest.raises(ArgumentError, match=f"^CORNSERVE_{name.upper()}: has other characters") as found:
        kind("http://x")
    assert (given.value.name, found.value.name) == (name, f"CORNSERVE_{name.upper()}")


@pytest.mark.parametrize("timeout", [math.inf, math.nan, -1.0, 1e7, 1e300])
@pytest.mark.parametrize(
    "call",
    [
        lambda client, timeout: client.invoke("a", {}, timeout=timeout),
        lambda client, timeout: list(client.stream("a", {}, timeout=timeout)),
        lambda client, timeout: list(client.chat("a", HELLO, timeout=timeout)),
        lambda client, timeout: client.complete("a", HELLO, timeout=timeout),
        lambda client, timeout: list(client.events("a", timeout=timeout)),
        lambda client, timeout: client.deploy(AppSpec(model="/models/x"), name="a", timeout=timeout),
    ],
    ids=["invoke", "stream", "chat", "complete", "events", "deploy"],
)
def test_a_timeout_that_cannot_be_waited_for_is_refused(
    server: Server, client: Client, call: Callable[[Client, float], object], timeout: float
) -> None:
    with pytest.raises(ArgumentError, match=r"^timeout: give seconds, at most 1000000, or none for"):
        call(client, timeout)
    assert not server.asked


def test_the_longest_timeout_can_be_waited_for(server: Server, client: Client) -> None:
    server.on("POST /v1/apps/a/invoke", json_answer({}))
    assert client.invoke("a", {}, timeout=1e6) == {}


@pytest.mark.parametrize("value", ["\ud800", object(), b"\xff"], ids=["lone surrogate", "object", "bytes"])
def test_a_request_that_is_no_json_is_refused(server: Server, client: Client, value: object) -> None:
    with pytest.raises(ArgumentError, match=r"^request: cannot be sent as JSON: "):
        client.invoke("a", {"text": value})
    with pytest.raises(ArgumentError, match=r"^request: cannot be sent as JSON: "):
        list(client.stream("a", {"text": value}))
    with pytest.raises(ArgumentError, match=r"^messages or options: cannot be sent as JSON: "):
        client.complete("a", [{"role": "user", "content": value}])
    with pytest.raises(ArgumentError, match=r"^messages or options: cannot be sent as JSON: "):
        list(client.chat("a", HELLO, stop=value))
    assert not server.asked


def test_a_name_that_fits_in_no_path_is_refused(server: Server, client: Client) -> None:
    for call in (client.app, client.delete, client.logs, lambda name: client.invoke(name, {})):
        with pytest.raises(ArgumentError, match=r"^app: .* is no name of an app"):
            call("\udcff")
        with pytest.raises(ClientError):
            call("a" * 100_000)
    assert not server.asked


def test_an_asynchronous_client_says_that_it_belongs_to_another_event_loop(server: Server) -> None:
    server.on("GET /v1/models", models(1))
    client = AsyncClient(server.url)
    with asyncio.Runner() as first, asyncio.Runner() as second:
        assert first.run(client.models()) == ["a"]
        for call in (client.models, client.close):
            with pytest.raises(LoopError, match=r"another event loop.*: make one for each"):
                second.run(call())
        first.run(client.close())


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("http_proxy", "gopher://x"),
        ("https_proxy", "http://[::1"),
        ("all_proxy", "socks4://x"),
        ("SSL_CERT_FILE", "/nowhere"),
    ],
)
def test_an_environment_that_leads_nowhere_is_refused_at_once(
    kind: type[Client | AsyncClient], variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setenv(variable, value)
    with pytest.raises(ArgumentError, match=r"^environment: mend or unset its proxy"):
        kind("http://elsewhere")


@pytest.mark.parametrize("home", ["/dev/null", "~nobody-of-this-name"])
def test_a_home_that_is_none_is_refused_at_once(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CORNSERVE_URL", raising=False)
    monkeypatch.setenv("CORNSERVE_HOME", home)
    with pytest.raises(ArgumentError, match=r"^CORNSERVE_HOME: is no home"):
        Client()
