"""`/v1/apps/{name}/invoke`: any app, any types."""

from __future__ import annotations

import asyncio
import gzip
import json

import httpx2 as httpx
import pytest

from cornserve.gateway.app_registry import AppRegistry
from cornserve.gateway.served_app import ServedApp
from tests.loop_clock import LoopClock
from tests.unit.echo_executors import EchoExecutors
from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.sources import CHAT, CHATTERBOX, ECHO, KEEPER, STEPS
from tests.waiting import until

FORM = {"content-type": "application/x-www-form-urlencoded"}
"""The content type that curl sends by default."""


async def test_an_app_is_invoked_with_its_own_types(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy(ECHO)

    response = await gateway.post("/v1/apps/echo/invoke", json={"text": "a b"})

    assert response.json() == {"words": None, "text": "a b", "words_sent": 2}
    assert response.headers["x-request-id"]


async def test_streams_are_events_for_clients_that_accept_them(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy(ECHO)
    headers = {"accept": "text/event-stream"}

    response = await gateway.post("/v1/apps/echo/invoke", json={"text": "a b"}, headers=headers)

    events = [block.split("\n") for block in response.text.strip().split("\n\n")]
    assert [event[0] for event in events] == ["event: item", "event: item", "event: result"]
    assert json.loads(events[1][1].removeprefix("data: ")) == {"stream": "words", "item": "b"}
    assert json.loads(events[2][1].removeprefix("data: "))["text"] == "a b"


async def test_independent_invocations_run_concurrently(
    gateway: httpx.AsyncClient, deploy: Deploy, executors: EchoExecutors, clock: LoopClock
) -> None:
    await deploy(STEPS)
    order = {"words": list("abcdefghij"), "seconds": 1}

    request = asyncio.create_task(gateway.post("/v1/apps/steps/invoke", json=order))
    await until(lambda: executors.running() == 10)  # all are running before the first one ends
    clock.advance(1)

    assert (await request).json() == {"text": " ".join(f"* {word}" for word in "abcdefghij")}


async def test_invocations_may_depend_on_the_content_of_earlier_ones(
    gateway: httpx.AsyncClient, deploy: Deploy
) -> None:
    await deploy(STEPS)

    response = await gateway.post("/v1/apps/steps/invoke", json={"words": ["a", "b"], "mode": "one by one"})

    assert response.json() == {"text": "* * a b"}


async def test_a_task_may_catch_the_failure_of_an_invocation(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy(STEPS)

    response = await gateway.post("/v1/apps/steps/invoke", json={"words": [], "mode": "fallback"})

    assert response.json() == {"text": "fell back: INTERNAL"}


async def test_no_request_reads_the_output_of_an_earlier_one(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy(KEEPER)

    first, second = [await gateway.post("/v1/apps/keeper/invoke", json={"text": text}) for text in ("a", "b")]

    assert first.json()["text"] == "a"
    assert second.status_code == 500
    assert "ReleasedOutputError: an output of the type EchoResponse was used after" in second.json()["error"]["message"]


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"words": "x"}, 400, "words: must be a valid array, not 'x'"),
        ({}, 400, "missing field: 'words'"),
        ({"words": [], "mode": "odd"}, 500, "KeyError: 'odd'"),
        ({"words": [], "mode": "not deployed"}, 500, "unit task EchoTask is not deployed"),
    ],
)
async def test_errors_have_the_error_format_and_the_status_of_their_cause(
    gateway: httpx.AsyncClient, deploy: Deploy, body: dict[str, object], status: int, message: str
) -> None:
    await deploy(STEPS)

    response = await gateway.post("/v1/apps/steps/invoke", json=body)

    assert response.status_code == status
    assert message in response.json()["error"]["message"]


async def test_an_invocation_that_fails_after_output_ends_the_stream_with_an_error(
    gateway: httpx.AsyncClient, deploy: Deploy
) -> None:
    await deploy(ECHO)
    headers = {"accept": "text/event-stream"}

    response = await gateway.post("/v1/apps/echo/invoke", json={"text": "a", "fail": "boom"}, headers=headers)

    assert response.status_code == 200
    assert response.text.strip().split("\n\n")[-1].startswith("event: error")
    assert "boom" in response.text


async def test_an_invocation_that_fails_before_output_returns_an_error_response(
    gateway: httpx.AsyncClient, deploy: Deploy
) -> None:
    await deploy(ECHO)

    response = await gateway.post("/v1/apps/echo/invoke", json={"text": "a", "fail": "boom"})

    assert response.status_code == 500
    assert "EchoTask (invocation 0) failed with INTERNAL: RuntimeError: boom" in response.json()["error"]["message"]


async def test_an_internal_error_is_a_500_without_details(
    gateway: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: AppRegistry, name: str) -> ServedApp:
        raise RuntimeError("a secret")

    monkeypatch.setattr(AppRegistry, "get", fail)

    response = await gateway.post("/v1/apps/echo/invoke", json={})

    assert response.status_code == 500
    assert response.json()["error"]["code"] == "internal_error"
    assert "a secret" not in response.text


async def test_a_wrong_method_is_a_405(gateway: httpx.AsyncClient) -> None:
    response = await gateway.get("/v1/apps/echo/invoke")

    assert response.status_code == 405
    assert response.json()["error"]["message"] == (
        "method GET is not allowed for '/v1/apps/echo/invoke': see the methods in /docs"
    )


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/v1/chat/completions", "POST"),
        ("/v1/models", "GET, HEAD"),
        ("/admin/v1/apps/echo", "DELETE, GET, HEAD, PUT"),
    ],
)
async def test_a_405_lists_the_allowed_methods(gateway: httpx.AsyncClient, path: str, allowed: str) -> None:
    response = await gateway.request("TRACE", path)

    assert (response.status_code, response.headers["allow"]) == (405, allowed)


async def test_a_compressed_body_is_a_415(gateway: httpx.AsyncClient) -> None:
    for path in ("/v1/chat/completions", "/v1/audio/transcriptions"):
        headers = {"content-encoding": "gzip", "content-type": "multipart/form-data; boundary=a"}
        headers |= {} if "audio" in path else {"content-type": "application/json"}
        response = await gateway.post(path, content=gzip.compress(b"{}"), headers=headers)

        assert response.status_code == 415
        assert "unsupported content encoding 'gzip'" in response.json()["error"]["message"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/apps/echo/invoke", "/admin/v1/apps/echo/record"])
@pytest.mark.parametrize("body", [b"model=m&messages=x", b"text=a", b"\n?", b'{"text": "a b"}', b""])
async def test_a_form_is_a_415_that_names_its_type_also_with_json(
    gateway: httpx.AsyncClient, deploy: Deploy, path: str, body: bytes
) -> None:
    await deploy(ECHO)

    response = await gateway.post(path, content=body, headers=FORM)

    assert response.status_code == 415
    assert response.json()["error"]["message"] == (
        "unsupported content type 'application/x-www-form-urlencoded': send JSON (content-type: application/json)"
    )


@pytest.mark.parametrize("content_type", ["", "application/json; charset=utf-8", "Application/Problem+JSON"])
async def test_json_may_have_other_types_of_json_or_no_type(
    gateway: httpx.AsyncClient, deploy: Deploy, content_type: str
) -> None:
    await deploy(ECHO)
    headers = {"content-type": content_type} if content_type else {}

    served = await gateway.post("/v1/apps/echo/invoke", content=b' {"text": "a b"}', headers=headers)

    assert served.json()["words_sent"] == 2


async def test_an_error_of_several_fields_names_the_first_one(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy(CHAT)
    messages = [{"role": "user", "content": "x"}, {"role": "user"}]

    for fields, param in ({"top_logprobs": 2}, "top_logprobs"), ({"messages": messages}, "messages[1].content"):
        response = await gateway.post("/v1/apps/parrot/invoke", json={"messages": messages[:1], **fields})

        error = response.json()["error"]
        assert (response.status_code, error["param"]) == (400, param)
        assert error["message"].startswith(f"{param}: ")


async def test_an_unknown_app_is_a_404(gateway: httpx.AsyncClient) -> None:
    response = await gateway.post("/v1/apps/nothing/invoke", json={})

    assert response.status_code == 404


async def test_the_logs_of_an_app_have_the_tracebacks_of_its_code_without_contents(
    gateway: httpx.AsyncClient, deploy: Deploy
) -> None:
    await deploy(STEPS.replace('"steps"', '"logged"'))
    await gateway.post("/v1/apps/logged/invoke", json={"words": ["a"]})
    failed = await gateway.post("/v1/apps/logged/invoke", json={"words": [], "mode": "a secret"})

    log, *_ = (await gateway.get("/admin/v1/apps/logged/logs")).json()["replicas"]

    assert log["id"] == "gateway"
    first, *frames = log["lines"]
    assert "the request failed: app 'logged', task Steps" in first
    assert first.endswith(f"request_id={failed.headers['x-request-id']}")
    raised_at = STEPS.splitlines().index("        raise KeyError(order.mode)") + 1
    assert frames[0].endswith(f'File "app.py", line {raised_at}, in invoke')
    assert frames[1] == "    raise KeyError(order.mode)"
    assert frames[-1] == "builtins.KeyError"
    assert "a secret" not in str(log)
    for query in ("lines=1", "lines=1&replica=gateway"):
        last, *_ = (await gateway.get(f"/admin/v1/apps/logged/logs?{query}")).json()["replicas"]
        assert (last["id"], last["lines"]) == ("gateway", frames[-1:])


async def test_tracebacks_and_prints_name_the_file_and_have_messages_if_the_app_sets_it(
    gateway: httpx.AsyncClient, deploy: Deploy
) -> None:
    source = STEPS.replace('"steps"', '"frank"').replace("raise KeyError", "print('sold')\n        raise KeyError")
    await deploy(source, filename="corn shop.py", log_messages=True)
    mode = "a secret\n" + "x" * 600
    failed = await gateway.post("/v1/apps/frank/invoke", json={"words": [], "mode": mode})

    lines = (await gateway.get("/admin/v1/apps/frank/logs")).json()["replicas"][0]["lines"]

    raised_at = source.splitlines().index("        raise KeyError(order.mode)") + 1
    assert f"corn shop.py:{raised_at} in invoke" in failed.json()["error"]["message"]
    assert f"PRINT corn shop.py:{raised_at - 1}: sold" in lines[0]
    assert any(line.endswith(f'File "corn shop.py", line {raised_at}, in invoke') for line in lines)
    assert lines[-1].startswith(r"builtins.KeyError: 'a secret\nxxx")
    assert len(lines[-1]) < 600


MAPPER = """
from cornserve import App, Task
from cornserve_echo import EchoRequest, EchoResponse, EchoTask

def check(word: str) -> str:
    print("checking", word)
    if word == "bad":
        raise ValueError("a bad word")
    return word

class Mapper(Task[EchoRequest, EchoResponse]):
    def post_init(self) -> None:
        self.echo = EchoTask()

    def invoke(self, request: EchoRequest) -> EchoResponse:
        return EchoResponse(words=self.echo.invoke(request).words.map(check), text="", words_sent=0)

app = App(name="mapper", paths=[Mapper()])
"""


async def test_the_logs_of_an_app_have_what_functions_print_that_it_maps_over_streams(
    gateway: httpx.AsyncClient, deploy: Deploy
) -> None:
    await deploy(MAPPER)
    path, headers = "/v1/apps/mapper/invoke", {"accept": "text/event-stream"}
    print_line = MAPPER.splitlines().index('    print("checking", word)') + 1

    responses = [await gateway.post(path, json={"text": text}, headers=headers) for text in ("a b", "bad")]
    log, *_ = (await gateway.get("/admin/v1/apps/mapper/logs")).json()["replicas"]

    written, failed = [response.headers["x-request-id"] for response in responses]
    assert [line.partition(" ")[2] for line in log["lines"][:3]] == [
        f"PRINT app.py:{print_line}: checking a request_id={written}",
        f"PRINT app.py:{print_line}: checking b request_id={written}",
        f"PRINT app.py:{print_line}: checking bad request_id={failed}",
    ]


@pytest.mark.parametrize(("app", "accept"), [("whole", "application/json"), ("streamed", "text/event-stream")])
async def test_the_logs_of_an_app_have_what_its_code_prints_once_for_each_request(
    gateway: httpx.AsyncClient, deploy: Deploy, app: str, accept: str
) -> None:
    await deploy(CHATTERBOX.replace('"chatterbox"', f'"{app}"'))
    print_line = CHATTERBOX.splitlines().index('            print("word", word)') + 1

    responses = [
        await gateway.post(f"/v1/apps/{app}/invoke", json={"words": words}, headers={"accept": accept})
        for words in (["a", "b"], [])
    ]
    log, *_ = (await gateway.get(f"/admin/v1/apps/{app}/logs")).json()["replicas"]

    written, failed = [response.headers["x-request-id"] for response in responses]
    expected = [
        f"PRINT app.py:{print_line}: word a request_id={written}",
        f"PRINT app.py:{print_line}: word b request_id={written}",
        f"PRINT app.py:{print_line + 2}: unfinished request_id={written}",
        f"PRINT app.py:{print_line + 2}: unfinished request_id={failed}",
    ]
    assert [line.partition(" ")[2] for line in log["lines"][:4]] == expected
    assert log["lines"][4].partition(" ")[2].startswith("ERROR the request failed: ")
