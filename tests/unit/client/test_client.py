from __future__ import annotations

import asyncio
import math
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cornserve import AsyncClient, Client
from cornserve.app.record import Phase
from cornserve.app.spec import AppModel, AppSpec
from cornserve.client import (
    ApiStatusError,
    AppDeletedError,
    ArgumentError,
    ClientClosedError,
    ClientError,
    DeploymentError,
    DisconnectedError,
    EventLoopError,
    ResponseTimeoutError,
    StreamItem,
    StreamResult,
    UnexpectedResponseError,
    UnreachableError,
    WaitTimeoutError,
)
from cornserve.home import Home
from cornserve.instance import Instance
from tests.certificates import certificate
from tests.fake_time import FakeTime
from tests.unit.client.blocking_client import BlockingClient
from tests.unit.http_server import StubResponse, StubServer, audio_response, json_response, serving, sse_response

HELLO = [{"role": "user", "content": "Hello!"}]


@pytest.fixture(autouse=True)
def time(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    """Lets the pauses of both clients end at once."""
    time = FakeTime()

    async def sleep(seconds: float) -> None:
        time.sleep(seconds)

    monkeypatch.setattr("cornserve.client.client.time", time)
    monkeypatch.setattr("cornserve.client.deadline.time", time)
    monkeypatch.setattr("cornserve.client.async_client.asyncio.sleep", sleep)
    return time


@pytest.fixture
def server() -> Iterator[StubServer]:
    with serving() as server:
        yield server


@pytest.fixture(params=[Client, BlockingClient])
def client(request: pytest.FixtureRequest, server: StubServer) -> Iterator[Client]:
    """Runs each test with both clients. `BlockingClient` gives the asynchronous client the synchronous interface."""
    with request.param(server.url) as client:
        yield client


def view(*, version: int = 1, generation: int = 1, phase: Phase = Phase.PENDING, of: int = 1) -> dict[str, Any]:
    status = {"phase": phase, "generation": of}
    spec = {"model": {"id": "/models/x"}}
    return {"name": "a", "uid": "u", "generation": generation, "version": version, "spec": spec, "status": status}


def models(*generations: int, uid: str = "u") -> StubResponse:
    return json_response({"data": [{"id": "a", "uid": uid, "generation": generation} for generation in generations]})


def test_a_deployment_sends_only_the_given_settings(server: StubServer, client: Client) -> None:
    server.on("PUT /admin/v1/apps/a", json_response(view()))
    assert client.deploy(AppSpec(model=AppModel(id="/models/x")), name="a", wait=False).name == "a"
    assert server.requests == [("PUT /admin/v1/apps/a", {"model": {"id": "/models/x"}})]


def test_the_phase_is_that_of_the_deployed_generation(server: StubServer, client: Client) -> None:
    server.on("GET /admin/v1/apps/a", json_response(view(generation=2, phase=Phase.SERVING, of=1)))
    assert client.app("a").phase is Phase.PENDING
    assert not client.app("a").settled


def test_the_tokens_of_engines_are_read_by_replica(server: StubServer, client: Client) -> None:
    limits = {"cache_tokens": 4096, "block_size": 16, "max_num_seqs": 8, "max_num_batched_tokens": 512}
    tokens = {"requests": 3, "prompt_tokens": 300, "generated_tokens": 30, **limits}
    server.on("GET /admin/v1/apps/a/engines", json_response({"llm-1": tokens}))
    assert {replica: found.model_dump() for replica, found in client.engines("a").items()} == {"llm-1": tokens}


def test_an_error_has_the_status_param_and_code_of_the_gateway(server: StubServer, client: Client) -> None:
    error = {"message": "missing field: 'text'", "type": "invalid_request_error", "param": "text", "code": "missing"}
    server.on("POST /v1/apps/a/invoke", json_response({"error": error}, 400))
    with pytest.raises(ApiStatusError, match="missing field: 'text'") as caught:
        client.invoke("a", {})
    assert (caught.value.status, caught.value.param, caught.value.code) == (400, "text", "missing")


def test_an_error_in_another_format_is_quoted(server: StubServer, client: Client) -> None:
    server.on("GET /admin/v1/apps", StubResponse(b"<h1>Bad gateway</h1>", 502, "text/html"))
    with pytest.raises(ApiStatusError, match="HTTP status 502: <h1>Bad gateway</h1>"):
        client.apps()


@pytest.mark.parametrize("body", [b"<h1>Hello</h1>", b"[]", b'{"apps": [{}]}'])
def test_a_response_in_another_format_is_unexpected(server: StubServer, client: Client, body: bytes) -> None:
    server.on("GET /admin/v1/apps", StubResponse(body))
    with pytest.raises(UnexpectedResponseError, match="did not respond like a Cornserve gateway"):
        client.apps()


@pytest.mark.parametrize("kind", [Client, BlockingClient])
def test_the_error_for_an_unreachable_gateway_suggests_a_fix(kind: type[Client]) -> None:
    with serving() as gone:
        pass
    with (
        kind(gone.url) as client,
        pytest.raises(UnreachableError, match=f"cannot connect to Cornserve at {gone.url}: start it"),
    ):
        client.apps()


def test_the_error_for_a_running_instance_tells_that_its_gateway_is_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving() as gone:
        pass
    monkeypatch.setenv("CORNSERVE_HOME", str(tmp_path))
    Instance.of_current_process(gone.url).write(Home(tmp_path))
    with Client(gone.url) as client, pytest.raises(UnreachableError, match="its gateway is starting again: retry"):
        client.apps()


def test_errors_do_not_contain_the_password_of_a_url() -> None:
    with Client("http://ada:corn@127.0.0.1:9", retries=0) as client, pytest.raises(UnreachableError) as caught:
        client.models()
    assert str(caught.value).startswith("cannot connect to Cornserve at http://127.0.0.1:9: ")


@pytest.mark.parametrize("kind", [Client, BlockingClient])
def test_the_error_for_an_unknown_certificate_names_it_and_its_authority_can_be_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Client]
) -> None:
    authority, tls = certificate(tmp_path, "localhost")
    with serving(tls) as gateway:
        gateway.on("GET /v1/models", json_response({"data": [{"id": "a"}]}))
        url = gateway.url.replace("127.0.0.1", "localhost")
        with kind(url, retries=0) as client, pytest.raises(UnreachableError) as caught:
            client.models()
        monkeypatch.setenv("SSL_CERT_FILE", str(authority))
        with kind(url, retries=0) as client:
            assert client.models() == ["a"]
    assert str(caught.value) == (
        f"cannot connect to Cornserve at {url}: its certificate is not valid: self-signed certificate: give its "
        "authority with SSL_CERT_FILE"
    )


def test_a_read_is_retried_after_a_broken_connection(server: StubServer, client: Client, time: FakeTime) -> None:
    server.on(
        "GET /admin/v1/apps", StubResponse(b"{", cut=True), StubResponse(b"{", cut=True), json_response({"apps": []})
    )
    assert client.apps() == []
    assert time.now == pytest.approx(0.2 + 0.4)


def test_an_invocation_is_not_retried_after_a_broken_connection(server: StubServer, client: Client) -> None:
    server.on("POST /v1/apps/a/invoke", StubResponse(b"{", cut=True), json_response({}))
    with pytest.raises(DisconnectedError):
        client.invoke("a", {})
    assert len(server.requests) == 1


def test_a_timeout_is_sent_to_the_gateway(server: StubServer, client: Client) -> None:
    server.on("POST /v1/apps/a/invoke", json_response({"error": {"message": "too late"}}, 504))
    with pytest.raises(ApiStatusError, match="too late"):
        client.invoke("a", {}, timeout=1.5)
    assert server.headers[0]["X-Request-Timeout"] == "1.5"


def test_the_api_key_is_sent(server: StubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORNSERVE_API_KEY", "secret")
    server.on("GET /admin/v1/apps", json_response({"apps": []}))
    with Client(server.url) as client:
        assert client.apps() == []
    assert server.headers[0]["Authorization"] == "Bearer secret"


@pytest.mark.parametrize(("token", "sent"), [(None, "Bearer key"), ("token", "Bearer token")])
def test_the_admin_token_is_sent_with_admin_calls_only(server: StubServer, token: str | None, sent: str) -> None:
    server.on("GET /admin/v1/apps", json_response({"apps": []}))
    server.on("GET /v1/models", models())
    with Client(server.url, "key", token) as client:
        client.apps()
        client.models()
    assert [headers["Authorization"] for headers in server.headers] == [sent, "Bearer key"]


def test_no_proxy_is_used_for_this_machine(server: StubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    server.on("GET /admin/v1/apps", json_response({"apps": []}))
    with Client(server.url) as client:
        assert client.apps() == []


def test_the_default_address_is_that_of_the_instance_of_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CORNSERVE_URL", raising=False)
    monkeypatch.delenv("CORNSERVE_PORT", raising=False)
    monkeypatch.setenv("CORNSERVE_HOME", str(tmp_path))
    for port, url in (("", "http://127.0.0.1:8000"), ("0", "http://127.0.0.1:8000"), ("7", "http://127.0.0.1:7")):
        monkeypatch.setenv("CORNSERVE_PORT", port)
        with Client() as client:
            assert client.url == url
    Instance.of_current_process("http://127.0.0.1:4711").write(Home(tmp_path))
    with Client() as client:
        assert client.url == "http://127.0.0.1:4711"
    monkeypatch.setenv("CORNSERVE_URL", "http://elsewhere:1/")
    with Client() as client:
        assert client.url == "http://elsewhere:1"


@pytest.mark.parametrize("port", ["web", "-1", "65536", "٣", "9" * 5000])
def test_an_invalid_port_in_the_environment_is_an_error_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, port: str
) -> None:
    monkeypatch.delenv("CORNSERVE_URL", raising=False)
    monkeypatch.setenv("CORNSERVE_HOME", str(tmp_path))
    monkeypatch.setenv("CORNSERVE_PORT", port)
    with pytest.raises(ArgumentError, match=f"CORNSERVE_PORT: {port[:80]!r} is not a port: give a number such as 8000"):
        Client()


def test_stream_items_come_before_the_result(server: StubServer, client: Client) -> None:
    items = [("item", {"stream": "words", "item": word}) for word in ("one", "two")]
    server.on("POST /v1/apps/a/invoke", sse_response(*items, ("result", {"text": "one two"})))
    received = list(client.stream("a", {"text": "x"}))
    assert received == [StreamItem("words", "one"), StreamItem("words", "two"), StreamResult({"text": "one two"})]


def test_an_error_event_in_a_stream_is_raised(server: StubServer, client: Client) -> None:
    failed = ("error", {"error": {"message": "the engine died", "code": "unavailable"}})
    server.on("POST /v1/apps/a/invoke", sse_response(("item", {"stream": "words", "item": "one"}), failed))
    stream = client.stream("a", {})
    assert next(stream) == StreamItem("words", "one")
    with pytest.raises(ApiStatusError, match="the engine died"):
        next(stream)


@pytest.mark.parametrize("cut", [True, False])
def test_an_incomplete_stream_is_an_error(server: StubServer, client: Client, cut: bool) -> None:
    server.on("POST /v1/apps/a/invoke", sse_response(("item", {"stream": "words", "item": "one"}), cut=cut))
    with pytest.raises(DisconnectedError):
        list(client.stream("a", {}))


@pytest.mark.parametrize("data", ["{", '"unfinished', "<h1>"])
def test_a_stream_in_another_format_is_unexpected(server: StubServer, client: Client, data: str) -> None:
    nonsense = StubResponse(f"event: put\ndata: {data}\n\n".encode(), type="text/event-stream")
    for call in ("POST /v1/apps/a/invoke", "POST /v1/chat/completions", "GET /admin/v1/apps/a/events"):
        server.on(call, nonsense)
    for stream in (client.stream("a", {}), client.chat("a", HELLO), client.events("a")):
        with pytest.raises(UnexpectedResponseError):
            next(stream)


def test_a_chat_yields_chunks_of_text(server: StubServer, client: Client) -> None:
    chunks = (f'data: {{"choices": [{{"delta": {{"content": "{text}"}}}}]}}\n\n' for text in ("Hel", "", "lo"))
    body = "".join([": still here\n\n", *chunks, "data: [DONE]\n\n"])
    server.on("POST /v1/chat/completions", StubResponse(body.encode(), type="text/event-stream"))
    assert list(client.chat("a", HELLO, max_tokens=5)) == ["Hel", "lo"]
    assert server.requests[0][1] == {"model": "a", "messages": HELLO, "stream": True, "max_tokens": 5}


def test_a_file_is_transcribed(server: StubServer, client: Client) -> None:
    server.on("POST /v1/audio/transcriptions", json_response({"text": "Hello!"}))

    assert client.transcribe("a", b"RIFF", language="en", temperature=0.5, timeout=9) == {"text": "Hello!"}

    ((_, form),) = server.requests
    assert form.count(b"Content-Disposition: form-data; ") == 4
    assert b'name="temperature"\r\n\r\n0.5\r\n' in form
    assert b"\r\n\r\nRIFF\r\n" in form
    assert server.headers[0]["X-Request-Timeout"] == "9"


@pytest.mark.parametrize(
    ("audio", "options", "error"),
    [
        (Path("/missing.wav"), {}, ArgumentError),
        (b"x", {"prompt": object()}, ArgumentError),
        (b"x", {"stream": True}, TypeError),
        (b"x", {"response_format": "text"}, TypeError),
    ],
)
def test_a_transcription_that_cannot_be_sent_is_rejected(
    server: StubServer, client: Client, audio: Path | bytes, options: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        client.transcribe("a", audio, **options)
    assert server.requests == []


DRAWN: list[tuple[str, dict[str, Any]]] = [
    *(("image_generation.progress", {"step": step, "steps": 2}) for step in (1, 2)),
    *(("image_generation.completed", {"b64_json": "", "seed": seed}) for seed in (7, 8)),
]
EVENTS: list[tuple[str, dict[str, Any]]] = [(type, {"type": type, **fields}) for type, fields in DRAWN]


def test_image_events_end_with_the_last_image(server: StubServer, client: Client) -> None:
    server.on("POST /v1/images/generations", sse_response(*EVENTS))

    events = list(client.image_events("a", "corn", n=2, progress=True, timeout=9))

    assert events == [event for _, event in EVENTS]
    assert server.requests[0][1] == {"model": "a", "prompt": "corn", "stream": True, "n": 2, "progress": True}
    assert server.headers[0]["X-Request-Timeout"] == "9"


def test_a_stream_without_its_last_image_is_an_error(server: StubServer, client: Client) -> None:
    server.on("POST /v1/images/generations", sse_response(*EVENTS[:-1]))
    with pytest.raises(DisconnectedError):
        list(client.image_events("a", "corn", n=2))

    server.on("POST /v1/images/generations", sse_response(("error", {"error": {"message": "the engine died"}})))
    with pytest.raises(ApiStatusError, match="the engine died"):
        list(client.image_events("a", "corn"))


def test_images_are_generated(server: StubServer, client: Client) -> None:
    document = {"data": [{"b64_json": "", "seed": 7}]}
    server.on("POST /v1/images/generations", json_response(document))

    assert client.generate_images("a", "corn", size="64x64") == document

    assert server.requests[0][1] == {"model": "a", "prompt": "corn", "size": "64x64"}
    with pytest.raises(TypeError, match="`image_events` streams"):
        client.generate_images("a", "corn", stream=True)


def test_speech_is_received_in_parts(server: StubServer, client: Client) -> None:
    server.on("POST /v1/audio/speech", audio_response(b"RIFFdata"))

    assert b"".join(client.speak("a", "corn", response_format="wav", timeout=9)) == b"RIFFdata"

    assert server.requests[0][1] == {"model": "a", "input": "corn", "response_format": "wav"}
    assert (server.headers[0]["X-Request-Timeout"], server.headers[0]["Accept"]) == ("9", "audio/*")
    with pytest.raises(TypeError, match="`stream_format` is not an option"):
        client.speak("a", "corn", stream_format="sse")


def test_speech_that_ends_early_is_an_error(server: StubServer, client: Client) -> None:
    server.on("POST /v1/audio/speech", audio_response(b"RIFF", cut=True))

    with pytest.raises(DisconnectedError):
        list(client.speak("a", "corn"))


def test_events_continue_after_a_broken_connection(server: StubServer, client: Client) -> None:
    server.on("GET /v1/models", models(1))
    server.on(
        "GET /admin/v1/apps/a/events",
        sse_response(("put", view(version=1)), cut=True),
        sse_response(("put", view(version=1)), ("put", view(version=2, phase=Phase.SERVING))),
        sse_response(("deleted", view(version=3))),
    )
    assert [app.version for app in client.events("a")] == [1, 2]


@pytest.mark.parametrize("kind", [Client, BlockingClient])
@pytest.mark.parametrize(
    ("restart_seconds", "end"), [(60.0, WaitTimeoutError), (0.1, UnreachableError)], ids=["restarting", "stopped"]
)
def test_events_survive_a_restart_of_the_gateway(
    monkeypatch: pytest.MonkeyPatch, kind: type[Client], restart_seconds: float, end: type[Exception]
) -> None:
    outages: list[str] = []
    monkeypatch.setattr("cornserve.client.app_watch.RESTART_SECONDS", restart_seconds)
    with serving() as gateway:
        gateway.on("GET /admin/v1/apps/a/events", sse_response(("put", view()), cut=True))
        client = kind(gateway.url, retries=0)
        events = client.events("a", timeout=0.5, on_outage=outages.append)
        next(events)
    with client, pytest.raises(end):
        next(events)
    assert outages == [f"cannot connect to the gateway: waiting up to {restart_seconds:g} s for its restart"]


@pytest.mark.parametrize("kind", [Client, BlockingClient])
def test_events_end_if_the_gateway_does_not_respond_for_long(
    monkeypatch: pytest.MonkeyPatch, kind: type[Client]
) -> None:
    outages: list[str] = []
    monkeypatch.setattr("cornserve.client.app_watch.SILENCE_SECONDS", 0.05)
    monkeypatch.setattr("cornserve.client.app_watch.NO_RESPONSE_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with kind(url, retries=0) as client, pytest.raises(ResponseTimeoutError):
            list(client.events("a", timeout=1, on_outage=outages.append))
    assert outages == ["the gateway does not respond: waiting up to 0.1 s"]


def test_a_serving_app_is_yielded_once_the_gateway_has_loaded_it(server: StubServer, client: Client) -> None:
    server.on("GET /admin/v1/apps/a/events", sse_response(("put", view(generation=2, phase=Phase.SERVING, of=2))))
    server.on("GET /v1/models", models(), models(1), models(2, uid="another"), models(2))
    assert next(client.events("a")).phase is Phase.SERVING
    assert [call for call, _ in server.requests].count("GET /v1/models") == 4


def test_loading_an_app_may_take_a_minute(server: StubServer, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = count(step=10)
    monkeypatch.setattr("cornserve.client.deadline.time", SimpleNamespace(monotonic=lambda: next(seconds)))
    server.on("GET /admin/v1/apps/a/events", sse_response(("put", view(phase=Phase.SERVING))))
    server.on("GET /v1/models", models(), models(), models(1))
    assert next(client.events("a")).phase is Phase.SERVING


def test_events_of_an_unknown_app_are_an_error(client: Client) -> None:
    with pytest.raises(ApiStatusError) as caught:
        next(client.events("a"))
    assert caught.value.status == 404


def test_events_end_after_the_timeout(server: StubServer, client: Client) -> None:
    server.on("GET /admin/v1/apps/a/events", sse_response(("put", view())))
    with pytest.raises(TimeoutError):
        list(client.events("a", timeout=0.2))


def test_a_deployment_reports_progress_until_it_serves(server: StubServer, client: Client) -> None:
    busy = {"key": "echo", "wanted": 1, "replicas": [{"id": "echo-1", "state": "starting", "message": "thinking"}]}
    starting = view(generation=2, phase=Phase.STARTING, of=2)
    starting["status"]["groups"] = [busy]
    server.on("PUT /admin/v1/apps/a", json_response(view(generation=2)))
    server.on(
        "GET /admin/v1/apps/a/events",
        sse_response(
            ("put", view(generation=1, phase=Phase.SERVING)),
            ("put", starting | {"version": 2}),
            ("put", view(version=3, generation=2, phase=Phase.SERVING, of=2)),
        ),
    )
    server.on("GET /v1/models", models(2))
    lines: list[str] = []
    assert client.deploy(AppSpec(model=AppModel(id="/models/x")), name="a", on_progress=lines.append).version == 3
    assert lines == ["echo-1: thinking"]


def test_a_failed_deployment_has_its_reason_and_the_log_of_the_executor(server: StubServer, client: Client) -> None:
    failed = view(phase=Phase.FAILED)
    failed["status"] |= {"message": "out of memory", "logs": ["one", "two"]}
    server.on("PUT /admin/v1/apps/a", json_response(view()))
    server.on("GET /admin/v1/apps/a/events", sse_response(("put", failed)))
    with pytest.raises(DeploymentError, match=r"a failed to start: out of memory\n  \| one\n  \| two"):
        client.deploy(AppSpec(model=AppModel(id="/models/x")), name="a")


def test_an_app_that_another_one_replaced_is_deleted(server: StubServer, client: Client) -> None:
    server.on("PUT /admin/v1/apps/a", json_response(view()))
    server.on("GET /admin/v1/apps/a/events", sse_response(("put", view() | {"uid": "another"})))
    with pytest.raises(AppDeletedError):
        client.deploy(AppSpec(model=AppModel(id="/models/x")), name="a")


def test_the_option_stream_is_rejected(server: StubServer, client: Client) -> None:
    with pytest.raises(TypeError, match="`stream` is not an option"):
        list(client.chat("a", [], stream=False))
    with pytest.raises(TypeError, match="`stream` is not an option"):
        client.complete("a", [], stream=True)
    assert not server.requests


def test_a_call_of_a_closed_client_is_an_error(server: StubServer) -> None:
    with Client(server.url) as client:
        pass
    with pytest.raises(ClientClosedError, match="closed: create another"):
        client.models()


async def test_a_call_of_a_closed_asynchronous_client_is_an_error(server: StubServer) -> None:
    async with AsyncClient(server.url) as client:
        pass
    with pytest.raises(ClientClosedError):
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
def test_an_invalid_url_is_rejected_by_the_constructor(
    kind: type[Client | AsyncClient], how: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if how == "environment":
        monkeypatch.setenv("CORNSERVE_URL", url)
    with pytest.raises(ArgumentError, match=r"^url: .* is not (a valid URL|the URL of a gateway)") as caught:
        kind(url if how == "argument" else None)
    assert isinstance(caught.value, ClientError)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("url", ["http://[::1]:8000", "https://münchen.example/cornserve/", "HTTP://LOCALHOST:1"])
def test_ipv6_and_international_urls_are_accepted(url: str) -> None:
    with Client(url) as client:
        assert client.url == url.rstrip("/")


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize("name", ["api_key", "admin_token"])
@pytest.mark.parametrize("secret", ["schlüssel", "a\nb", "key\n", " ", "\udcff"])
def test_a_secret_that_a_header_cannot_contain_is_rejected_by_the_constructor(
    kind: Callable[..., object], name: str, secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ArgumentError, match=f"^{name}: contains characters other than printable ASCII") as given:
        kind("http://x", **{name: secret})
    monkeypatch.setenv(f"CORNSERVE_{name.upper()}", secret)
    with pytest.raises(ArgumentError, match=f"^CORNSERVE_{name.upper()}: contains characters other") as found:
        kind("http://x")
    assert (given.value.name, found.value.name) == (name, f"CORNSERVE_{name.upper()}")


@pytest.mark.parametrize(
    "call",
    [
        lambda client, timeout: client.invoke("a", {}, timeout=timeout),
        lambda client, timeout: list(client.stream("a", {}, timeout=timeout)),
        lambda client, timeout: list(client.chat("a", HELLO, timeout=timeout)),
        lambda client, timeout: client.complete("a", HELLO, timeout=timeout),
        lambda client, timeout: list(client.events("a", timeout=timeout)),
        lambda client, timeout: client.deploy(AppSpec(model=AppModel(id="/models/x")), name="a", timeout=timeout),
    ],
    ids=["invoke", "stream", "chat", "complete", "events", "deploy"],
)
def test_an_invalid_timeout_is_rejected(
    server: StubServer, client: Client, call: Callable[[Client, float], object]
) -> None:
    for timeout in (math.inf, math.nan, -1.0, 1e7, 1e300):
        with pytest.raises(ArgumentError, match=r"^timeout: .* is not valid: give seconds between 0 and 1000000"):
            call(client, timeout)
    assert not server.requests


def test_the_longest_timeout_is_accepted(server: StubServer, client: Client) -> None:
    server.on("POST /v1/apps/a/invoke", json_response({}))
    assert client.invoke("a", {}, timeout=1e6) == {}


@pytest.mark.parametrize("value", ["\ud800", object(), b"\xff"], ids=["lone surrogate", "object", "bytes"])
def test_a_request_that_cannot_be_json_is_rejected(server: StubServer, client: Client, value: object) -> None:
    with pytest.raises(ArgumentError, match=r"^request: cannot be sent as JSON: "):
        client.invoke("a", {"text": value})
    with pytest.raises(ArgumentError, match=r"^request: cannot be sent as JSON: "):
        list(client.stream("a", {"text": value}))
    with pytest.raises(ArgumentError, match=r"^messages or options: cannot be sent as JSON: "):
        client.complete("a", [{"role": "user", "content": value}])
    with pytest.raises(ArgumentError, match=r"^messages or options: cannot be sent as JSON: "):
        list(client.chat("a", HELLO, stop=value))
    assert not server.requests


def test_an_app_name_that_a_url_cannot_contain_is_rejected(server: StubServer, client: Client) -> None:
    for call in (client.app, client.delete, client.logs, lambda name: client.invoke(name, {})):
        with pytest.raises(ArgumentError, match=r"^app: .* is not a valid app name"):
            call("\udcff")
        with pytest.raises(ClientError):
            call("a" * 100_000)
    assert not server.requests


def test_an_asynchronous_client_rejects_another_event_loop(server: StubServer) -> None:
    server.on("GET /v1/models", models(1))
    client = AsyncClient(server.url)
    with asyncio.Runner() as first, asyncio.Runner() as second:
        assert first.run(client.models()) == ["a"]
        for call in (client.models, client.close):
            with pytest.raises(EventLoopError, match=r"another event loop: create a client for each"):
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
def test_invalid_proxies_and_certificates_are_rejected_by_the_constructor(
    kind: type[Client | AsyncClient], variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setenv(variable, value)
    with pytest.raises(ArgumentError, match=r"^environment: correct or unset its proxy"):
        kind("http://elsewhere")


@pytest.mark.parametrize("home", ["/dev/null", "~nobody-of-this-name"])
def test_an_invalid_home_is_rejected_by_the_constructor(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CORNSERVE_URL", raising=False)
    monkeypatch.setenv("CORNSERVE_HOME", home)
    with pytest.raises(ArgumentError, match=r"^CORNSERVE_HOME: is not a readable home"):
        Client()


def test_certificates_are_only_read_for_connections_with_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = list[object]()
    read = ssl.SSLContext.load_verify_locations

    def record(context: ssl.SSLContext, *args: Any, **kwargs: Any) -> None:
        loaded.append(context)
        read(context, *args, **kwargs)

    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", record)
    with Client("http://127.0.0.1:8000"):
        assert not loaded
    for url in ("https://127.0.0.1:8000", "http://gateway.example"):
        loaded.clear()
        with Client(url):
            assert loaded


def test_the_clients_do_not_load_the_kubernetes_client() -> None:
    code = "import cornserve.client, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"kubernetes", "aiohttp", "yaml"}.isdisjoint(loaded)
