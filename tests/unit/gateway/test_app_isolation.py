"""The code of one app cannot disturb other apps, nor other requests to the same app."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from textwrap import indent

import httpx2 as httpx
import pytest

from cornserve.app_host import host_process
from cornserve.app_host.protocol import MAX_REPLY_BYTES
from cornserve.control.store.base import ROUTES, Store
from cornserve.gateway.task_runs.hosted_app import MAX_OFFENSES, OFFENSE_SECONDS
from cornserve.limits import Limits
from tests.loop_clock import LoopClock
from tests.unit.echo_executors import EchoExecutors
from tests.unit.gateway.app_hosts import app_host, app_hosts
from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.running_gateway import GatewayOptions, with_gateway_options
from tests.unit.gateway.sources import ECHO
from tests.waiting import until

SMALL_STEP = 0.02
"""Seconds by which the clock advances while the process of an app is ended: the next one loads the app meanwhile."""

FRAGILE = """
import os
import time
from itertools import repeat

from pydantic import BaseModel, field_validator

from cornserve import App, Stream, Task
from cornserve_echo import EchoRequest, EchoTask

class Order(BaseModel):
    text: str
    seconds: float = 0

    @field_validator("text")
    @classmethod
    def check(cls, text):
        if text == "fail when parsed":
            offend()
        return text

class Words(BaseModel):
    words: Stream[str]

def offend():
{code}

class Fragile(Task[Order, Words]):
    def post_init(self) -> None:
        self.echo = EchoTask()

    def invoke(self, order: Order) -> Words:
        if order.text == "fail":
            offend()
        return Words(words=self.echo.invoke(EchoRequest(**order.model_dump())).words.map(self.mapped))

    def mapped(self, word):
        if word == "bad":
            offend()
        return word.upper()

app = App(name="fragile", paths=[Fragile()])
"""

LARGE_REPLY = """
from pydantic import BaseModel

from cornserve import App, Task
from cornserve_echo import EchoTask

class Size(BaseModel):
    characters: int

class Text(BaseModel):
    text: str

class Large(Task[Size, Text]):
    def post_init(self) -> None:
        self.echo = EchoTask()

    def invoke(self, size: Size) -> Text:
        return Text(text=size.characters * "x")

app = App(name="large", paths=[Large()])
"""

LOOPING_CHAT = """
from cornserve import App, Task
from cornserve_echo import EchoRequest, EchoTask
from cornserve_tasklib import ChatChunk, ChatRequest, ChatResponse

class Looping(Task[ChatRequest, ChatResponse]):
    def post_init(self) -> None:
        self.echo = EchoTask()

    def invoke(self, request: ChatRequest) -> ChatResponse:
        text = request.messages[0].content
        while text == "loop": pass
        output = self.echo.invoke(EchoRequest(text=text))
        return ChatResponse(chunks=output.words.map(lambda word: ChatChunk(text=word)))

app = App(name="looping", paths=[Looping()])
"""

SSE = {"accept": "text/event-stream"}


SLOW_TO_PARSE = """
import os
import time

from pydantic import model_validator

from cornserve import App, Task
from cornserve_echo import EchoResponse, EchoRequest, EchoTask
from cornserve_tasklib import ChatRequest

class SlowRequest(ChatRequest):
    @model_validator(mode="after")
    def be_slow_once(self):
        if not os.path.exists({started!r}):
            open({started!r}, "w").close()
            time.sleep(60)
        return self

class Slow(Task[SlowRequest, EchoResponse]):
    def post_init(self) -> None:
        self.echo = EchoTask()

    def invoke(self, request: SlowRequest) -> EchoResponse:
        return self.echo.invoke(EchoRequest(text=request.messages[0].content))

app = App(name="slow", paths=[Slow()])
"""


@pytest.fixture(scope="module")
def gateway_options(request: pytest.FixtureRequest) -> GatewayOptions:
    return getattr(request, "param", GatewayOptions(Limits(run_seconds=1, app_mib=256)))


def fragile(code: str) -> str:
    return FRAGILE.replace("{code}", indent(code, "    "))


async def call(gateway: httpx.AsyncClient, text: str, seconds: float = 0) -> httpx.Response:
    return await gateway.post("/v1/apps/fragile/invoke", json={"text": text, "seconds": seconds}, headers=SSE)


def endless(begins: Path) -> str:
    """Returns code that creates the file and then does not end."""
    return f"open({str(begins)!r}, 'w').close()\nwhile True: pass"


async def response_to_endless(
    gateway: httpx.AsyncClient, clock: LoopClock, begins: Path, text: str = "fail"
) -> httpx.Response:
    """Returns the response to a request whose code creates the file and then does not end."""
    response = asyncio.create_task(call(gateway, text))
    await until(begins.exists)
    return await clock.advance_during(response, step=0.1)


def events(*words: str) -> str:
    """Returns the response to a request whose words are mapped."""
    items = "".join(f'event: item\ndata: {{"stream":"words","item":"{word}"}}\n\n' for word in words)
    return f'{items}event: result\ndata: {{"words":null}}\n\n'


@pytest.mark.parametrize(
    "text",
    ["fail", pytest.param("fail when parsed", marks=pytest.mark.slow), pytest.param("bad", marks=pytest.mark.slow)],
)
@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("os._exit(3)", "SystemExit"),
        ("bytearray(1 << 30)", "MemoryError (limit app-mib, see `cornserve up --limit`)"),
        ("offend()", "RecursionError: maximum recursion depth exceeded"),
        ("os.abort()", "the app's process was killed by SIGABRT"),
        ("os.kill(os.getpid(), 9)", "the app's process was killed by SIGKILL"),
        (
            "raise type('Mute', (Exception,), {'__str__': lambda self: 1 / 0})()",
            "Mute: (its text raises ZeroDivisionError)",
        ),
        ("raise RuntimeError(100_000_000 * 'x')", "RuntimeError: xxx"),
    ],
)
async def test_code_that_misbehaves_fails_its_request_only_and_the_error_names_its_line(
    gateway: httpx.AsyncClient, deploy: Deploy, code: str, reason: str, text: str
) -> None:
    source = fragile(code)
    await deploy(source)
    line = source.splitlines().index(f"    {code}") + 1

    response = await call(gateway, text)

    assert reason in response.text
    assert "app 'fragile', task Fragile" in response.text
    assert f"app.py:{line} in offend" in response.text or "SIGKILL" in reason
    assert (await call(gateway, "a b")).text == events("A", "B")


@pytest.mark.parametrize("text", ["fail", "fail when parsed", "bad"])
@pytest.mark.parametrize("code", ["while True: pass", "time.sleep(60)"])
async def test_code_that_does_not_end_fails_its_request_only_and_the_error_names_its_line(
    gateway: httpx.AsyncClient,
    deploy: Deploy,
    clock: LoopClock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    code: str,
    text: str,
) -> None:
    monkeypatch.setattr(host_process, "TRACE_SECONDS", 30)  # On a busy machine, the process may need so long.
    begins = tmp_path / "begins"
    source = fragile(endless(begins).replace("while True: pass", code))
    await deploy(source)
    line = source.splitlines().index(f"    {code}") + 1

    response = await response_to_endless(gateway, clock, begins, text)

    assert "the app's code ran for more than 1 s (limit run-seconds=1" in response.text
    assert "app 'fragile', task Fragile" in response.text
    assert f"app.py:{line} in offend" in response.text
    assert (await call(gateway, "a b")).text == events("A", "B")


@pytest.mark.parametrize(
    "code",
    [
        "import asyncio; asyncio.get_running_loop().call_later(0.05, lambda: ({begin}, time.sleep(1000)))",
        "import threading; threading.Thread(target=lambda: ({begin}, sum(repeat(1))), daemon=True).start()",
    ],
    ids=["callback", "thread"],
)
async def test_code_that_blocks_the_process_after_its_request_is_ended(
    gateway: httpx.AsyncClient, deploy: Deploy, clock: LoopClock, tmp_path: Path, code: str
) -> None:
    begins = tmp_path / "begins"
    await deploy(fragile(code.format(begin=f"time.sleep(0.05), open({str(begins)!r}, 'w').close()")))
    host = await app_host()
    await call(gateway, "fail")
    await until(begins.exists)
    response = asyncio.create_task(call(gateway, "a b"))

    await clock.advance_until(lambda: not host.is_running(), step=SMALL_STEP, at_most=20)

    assert (await response).text == events("A", "B")


async def test_a_process_that_blocks_while_its_request_waits_for_an_executor_is_ended(
    gateway: httpx.AsyncClient, deploy: Deploy, clock: LoopClock, tmp_path: Path
) -> None:
    blocked = tmp_path / "blocked"
    block = f"lambda: (open({str(blocked)!r}, 'w').close(), time.sleep(1000))"
    await deploy(fragile(f"import asyncio; asyncio.get_running_loop().call_later(0.5, {block})"))
    host = await app_host()
    waiting = asyncio.create_task(call(gateway, "fail", seconds=3600))

    await until(blocked.exists)

    await clock.advance_until(lambda: not host.is_running(), step=SMALL_STEP, at_most=20)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


async def test_a_process_that_cuts_its_shared_memory_does_not_end_the_gateway(
    gateway: httpx.AsyncClient, deploy: Deploy
) -> None:
    code = "for fd in range(3, 40):\n    try: os.ftruncate(fd, 0)\n    except OSError: pass"
    await deploy(fragile(code))

    await call(gateway, "fail")

    assert (await call(gateway, "a b")).text == events("A", "B")


async def test_other_requests_to_the_app_go_on_in_a_new_process(
    gateway: httpx.AsyncClient, deploy: Deploy, executors: EchoExecutors, clock: LoopClock, tmp_path: Path
) -> None:
    begins = tmp_path / "begins"
    await deploy(fragile(endless(begins)))
    words = [f"word{index}" for index in range(30)]
    slow = asyncio.create_task(call(gateway, " ".join(words), seconds=3))
    await until(lambda: executors.running() == 1)

    response = await response_to_endless(gateway, clock, begins)

    assert "ran for more than 1 s" in response.text
    assert not slow.done()
    assert (await slow).text == events(*map(str.upper, words))
    assert executors.total("cornserve_executor_invocations_total", {"code": "OK"}) == 1


@with_gateway_options(GatewayOptions(Limits(app_mib=2048)))
async def test_a_reply_of_an_app_that_is_too_large_fails_its_request_only(
    gateway: httpx.AsyncClient, deploy: Deploy
) -> None:
    await deploy(LARGE_REPLY)
    host = await app_host()

    response = await gateway.post("/v1/apps/large/invoke", json={"characters": MAX_REPLY_BYTES})

    assert response.status_code == 500
    assert "can have at most 16777216 bytes in total" in response.json()["error"]["message"]
    assert (await gateway.post("/v1/apps/large/invoke", json={"characters": 1})).json() == {"text": "x"}
    assert app_hosts() == [host]


async def test_a_request_is_parsed_in_a_new_process_after_another_request_has_ended_the_first(
    gateway: httpx.AsyncClient, deploy: Deploy, clock: LoopClock
) -> None:
    await deploy(LOOPING_CHAT)

    async def chat(text: str) -> httpx.Response:
        body = {"messages": [{"role": "user", "content": text}]}
        return await gateway.post("/v1/apps/looping/invoke", json=body, headers=SSE)

    looping = asyncio.create_task(chat("loop"))
    host = await app_host()
    await until(lambda: host.cpu_times().user > 0.3)

    hello = asyncio.create_task(chat("hello"))
    await clock.advance_until(lambda: looping.done() or not host.is_running(), step=SMALL_STEP, at_most=20)

    assert '"text":"hello"' in (await hello).text
    assert "ran for more than 1 s" in (await looping).text


async def test_a_cancelled_request_whose_stream_is_mapped_leaves_no_tasks(
    gateway: httpx.AsyncClient, deploy: Deploy, executors: EchoExecutors
) -> None:
    await deploy(fragile("pass"))
    await call(gateway, "a")
    before = len(asyncio.all_tasks())
    slow = asyncio.create_task(call(gateway, "a b c", seconds=30))
    await until(lambda: executors.running() == 1 and len(asyncio.all_tasks()) > before + 2)

    slow.cancel()

    await until(lambda: len(asyncio.all_tasks()) <= before, seconds=15)


async def test_a_killed_process_of_an_app_is_replaced(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy(fragile("pass"))
    words = [f"word{index}" for index in range(20)]
    slow = asyncio.create_task(call(gateway, " ".join(words), seconds=2))
    host = await app_host()

    host.kill()

    assert (await slow).text == events(*map(str.upper, words))
    assert [process.pid for process in app_hosts()] != [host.pid]


@with_gateway_options(GatewayOptions(Limits(run_seconds=60)))
@pytest.mark.parametrize("text", ["fail", "fail when parsed", "bad"])
async def test_a_request_whose_code_runs_in_a_killed_process_is_repeated(
    gateway: httpx.AsyncClient, deploy: Deploy, tmp_path: Path, text: str
) -> None:
    started = str(tmp_path / "started")
    await deploy(fragile(f"if os.path.exists({started!r}): return\nopen({started!r}, 'w').close()\ntime.sleep(60)"))
    response = asyncio.create_task(call(gateway, text))
    await until((tmp_path / "started").exists)
    host = await app_host()

    host.kill()

    assert (await response).text == events(*text.upper().split())


@with_gateway_options(GatewayOptions(Limits(run_seconds=60)))
async def test_a_request_that_is_parsed_in_a_killed_process_is_repeated(
    gateway: httpx.AsyncClient, deploy: Deploy, tmp_path: Path
) -> None:
    started = tmp_path / "started"
    await deploy(SLOW_TO_PARSE.replace("{started!r}", repr(str(started))))
    body = {"messages": [{"role": "user", "content": "a b"}]}
    response = asyncio.create_task(gateway.post("/v1/apps/slow/invoke", json=body, headers=SSE))
    await until(started.exists)
    host = await app_host()

    host.kill()

    assert '"item":"b"' in (await response).text


async def test_an_app_that_ends_its_processes_repeatedly_is_suspended_until_it_is_deployed_again(
    gateway: httpx.AsyncClient, store: Store, deploy: Deploy
) -> None:
    source = fragile("os.abort()")
    await deploy(source)
    await deploy(ECHO)
    for _ in range(MAX_OFFENSES):
        assert "SIGABRT" in (await call(gateway, "fail")).text

    suspended = await call(gateway, "a b")

    assert suspended.status_code == 503
    error = suspended.json()["error"]
    assert error["code"] == "app_suspended"
    assert "'fragile' is suspended: its processes were replaced 5 times within 300 s" in error["message"]
    assert "killed by SIGABRT at app.py" in error["message"]
    assert suspended.headers["x-should-retry"] == "false"
    assert (await gateway.post("/v1/apps/echo/invoke", json={"text": "a"})).status_code == 200
    await until(lambda: _is_suspended(store))
    shown = (await gateway.get("/admin/v1/apps/fragile")).json()
    assert "killed by SIGABRT" in shown["status"]["suspended"]

    await gateway.put("/admin/v1/apps/fragile", json={"source": {"inline": source}})

    await until(lambda: _serves(gateway))
    assert not (await gateway.get("/admin/v1/apps/fragile")).json()["status"]["suspended"]


async def test_an_app_whose_processes_end_rarely_is_not_suspended(
    gateway: httpx.AsyncClient, deploy: Deploy, clock: LoopClock
) -> None:
    await deploy(fragile("os.abort()"))
    for _ in range(MAX_OFFENSES):
        assert "SIGABRT" in (await call(gateway, "fail")).text
        clock.advance(OFFENSE_SECONDS / (MAX_OFFENSES - 1) + 1)

    assert (await call(gateway, "a b")).text == events("A", "B")


async def test_the_time_of_an_apps_code_is_a_metric(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy(fragile("time.sleep(0.1)"))
    await call(gateway, "fail")

    assert await _run_seconds(gateway) > 0.1


async def test_the_time_of_code_that_is_ended_is_part_of_the_metric(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy(fragile("while True: pass"))
    await call(gateway, "fail")

    assert await _run_seconds(gateway) > 1


async def _run_seconds(gateway: httpx.AsyncClient) -> float:
    metrics = (await gateway.get("/metrics")).text
    (seconds,) = re.findall(r'^cornserve_gateway_app_code_seconds_total\{app="fragile"\} (.*)$', metrics, re.MULTILINE)
    return float(seconds)


async def _is_suspended(store: Store) -> bool:
    return bool((await store.get(ROUTES, "fragile")).status.suspended)


async def _serves(gateway: httpx.AsyncClient) -> bool:
    return (await call(gateway, "a b")).status_code == 200
