"""Functions that a task calls with `recorded` run once for each request."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx2 as httpx
import psutil
import pytest

from cornserve.app_host.side_effects import MAX_THREADS
from cornserve.limits import Limits
from tests.loop_clock import LoopClock
from tests.unit.echo_executors import EchoExecutors
from tests.unit.gateway.app_hosts import app_host, app_hosts
from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.metrics import exposes
from tests.unit.gateway.running_gateway import GatewayOptions, with_gateway_options
from tests.waiting import until

BUYER = """
import os
import time
from collections.abc import Generator
from typing import Any

from pydantic import BaseModel

from cornserve import App, Task, recorded
from cornserve.task.errors import SideEffectError
from cornserve_echo import EchoRequest, EchoTask

class Order(BaseModel):
    items: list[str]

class Receipt(BaseModel):
    lines: list[Any]

class Bought(BaseModel):
    item: str
    price: int

class Unreadable(Exception):
    def __str__(self) -> str:
        raise OSError

def buy(item: str, *, price: int) -> Any:
    with open({log!r}, "a") as log:
        log.write(item + "\\n")
    print("bought", item)
    if item == "nothing":
        raise ValueError("out of stock")
    if item == "slowly":
        while not os.path.exists({log!r} + ".released"):
            time.sleep(0.01)
    if item == "lock":
        return time
    if item == "surrogate":
        raise KeyError(chr(0xD800))
    if item == "silence":
        raise Unreadable
    return Bought(item=item, price=price)

class Buyer(Task[Order, Receipt]):
    def post_init(self) -> None:
        self.echo = EchoTask()

    def invoke(self, request: Order) -> Generator[Any, None, Receipt]:
        lines = []
        for item in request.items:
            text = self.echo.invoke(EchoRequest(text=item)).text
            yield f"buying {{text}}"
            try:
                bought = recorded(buy, text, price=len(text))
            except SideEffectError as error:
                bought = str(error)
            lines.append(bought)
        return Receipt(lines=lines)

app = App(name="buyer", paths=[Buyer()])
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The file to which the function of the app writes."""
    (file := tmp_path / "log").touch()
    return file


def release(log: Path) -> None:
    """Lets the calls for the item "slowly" return."""
    log.with_name("log.released").touch()


def bought(log: Path) -> list[str]:
    return log.read_text().split()


async def order(gateway: httpx.AsyncClient, *items: str) -> Any:
    response = await gateway.post("/v1/apps/buyer/invoke", json={"items": items})
    return response.json()


async def test_each_call_runs_once_and_its_result_is_repeated(
    gateway: httpx.AsyncClient, deploy: Deploy, log: Path
) -> None:
    await deploy(BUYER.format(log=str(log)))

    receipt = await order(gateway, "corn", "husk", "corn")

    assert receipt == {
        "lines": [{"item": "corn", "price": 4}, {"item": "husk", "price": 4}, {"item": "corn", "price": 4}]
    }
    assert bought(log) == ["corn", "husk", "corn"]


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("nothing", "buy: ValueError: out of stock"),
        ("lock", "buy: its result cannot be written as JSON: Unable to serialize unknown type: <class 'module'>"),
        ("surrogate", "buy: KeyError: '\\ud800'"),
        ("silence", "buy: Unreadable: (its text raises OSError)"),
    ],
)
async def test_a_failed_call_is_an_error_that_the_task_can_catch(
    gateway: httpx.AsyncClient, deploy: Deploy, log: Path, item: str, message: str
) -> None:
    await deploy(BUYER.format(log=str(log)))

    assert await order(gateway, item) == {"lines": [message]}


@with_gateway_options(GatewayOptions(Limits(run_seconds=1)))
async def test_calls_do_not_count_as_running_code_and_run_concurrently(
    gateway: httpx.AsyncClient, deploy: Deploy, clock: LoopClock, log: Path
) -> None:
    await deploy(BUYER.format(log=str(log)))
    slow = [asyncio.create_task(order(gateway, "slowly")) for _ in range(3)]

    await until(lambda: bought(log) == ["slowly"] * 3)
    host = await app_host()
    for _ in range(50):  # longer than the limit for runs
        clock.advance(0.1)
        await asyncio.sleep(0.005)
        await until(lambda: host.status() == psutil.STATUS_SLEEPING)  # it has handled the gateway's commands

    assert not any(request.done() for request in slow)
    release(log)
    assert await asyncio.gather(*slow) == [{"lines": [{"item": "slowly", "price": 6}]}] * 3


async def test_yielded_values_arrive_before_the_call_returns(
    gateway: httpx.AsyncClient, deploy: Deploy, log: Path
) -> None:
    await deploy(BUYER.format(log=str(log)))
    request = gateway.stream(
        "POST", "/v1/apps/buyer/invoke", json={"items": ["slowly"]}, headers={"accept": "text/event-stream"}
    )

    async with request as response:
        parts = response.aiter_text()
        first = await anext(parts)
        release(log)
        rest = "".join([part async for part in parts])

    assert "buying slowly" in first
    assert "price" not in first
    assert '"price":6' in rest


async def test_a_call_is_not_repeated_when_its_process_is_killed(
    gateway: httpx.AsyncClient, deploy: Deploy, log: Path
) -> None:
    await deploy(BUYER.format(log=str(log)))
    request = asyncio.create_task(order(gateway, "corn", "slowly"))
    await until(lambda: "slowly" in bought(log))

    for host in app_hosts():
        host.kill()

    error = (await request)["error"]
    assert "killed by SIGKILL while buy ran, which is not repeated" in error["message"]
    assert bought(log) == ["corn", "slowly"]
    assert await order(gateway, "husk") == {"lines": [{"item": "husk", "price": 4}]}


async def app_lines(gateway: httpx.AsyncClient, app: str) -> list[str]:
    """Returns the lines of the app's log, without their times."""
    log, *_ = (await gateway.get(f"/admin/v1/apps/{app}/logs")).json()["replicas"]
    return [line.partition(" ")[2] if line.startswith("20") else line for line in log["lines"]]


def line_of(text: str) -> int:
    """Returns the number of the line of `BUYER` that contains the text."""
    return next(number for number, line in enumerate(BUYER.splitlines(), start=1) if text in line)


async def test_the_log_has_the_traceback_of_a_call_whose_error_is_caught(
    gateway: httpx.AsyncClient, deploy: Deploy, log: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await deploy(BUYER.replace('"buyer"', '"wary"').format(log=str(log)))

    response = await gateway.post("/v1/apps/wary/invoke", json={"items": ["nothing", "corn"]})

    assert response.json()["lines"][0] == "buy: ValueError: out of stock"
    request = f"request_id={response.headers['x-request-id']}"
    assert await app_lines(gateway, "wary") == [
        f"PRINT app.py:{line_of('print(')}: bought nothing {request}",
        f"ERROR the recorded call of buy failed: app 'wary', task Buyer, app.py:{line_of('recorded(buy')} {request}",
        f'  File "app.py", line {line_of("out of stock")}, in buy',
        '    raise ValueError("out of stock")',
        "builtins.ValueError",
        f"PRINT app.py:{line_of('print(')}: bought corn {request}",
    ]
    (record,) = [record for record in caplog.records if "the recorded call" in record.getMessage()]
    assert "in buy" in str(vars(record)["redacted_traceback"])


async def test_the_log_has_the_message_of_a_call_if_the_app_sets_it(
    gateway: httpx.AsyncClient, deploy: Deploy, log: Path
) -> None:
    source = BUYER.replace('"buyer"', '"frank"').format(log=str(log))
    await deploy(source, filename="shop.py", log_messages=True)

    await gateway.post("/v1/apps/frank/invoke", json={"items": ["nothing"]})

    lines = await app_lines(gateway, "frank")
    assert f'  File "shop.py", line {line_of("out of stock")}, in buy' in lines
    assert "builtins.ValueError: out of stock" in lines


async def test_the_log_has_the_traceback_before_that_of_the_request_which_fails(
    gateway: httpx.AsyncClient, deploy: Deploy, log: Path
) -> None:
    await deploy(
        BUYER.replace('"buyer"', '"failing"').format(log=str(log)).replace("except SideEffectError", "except KeyError")
    )

    response = await gateway.post("/v1/apps/failing/invoke", json={"items": ["nothing"]})

    message = response.json()["error"]["message"]
    place = f"app 'failing', task Buyer, app.py:{line_of('recorded(buy')} in invoke"
    assert message == f"SideEffectError: buy: ValueError: out of stock ({place})"
    call, request = [line for line in await app_lines(gateway, "failing") if line.startswith("ERROR")]
    assert call.startswith("ERROR the recorded call of buy failed: ")
    assert request.startswith(f"ERROR the request failed: {place} request_id=")


@with_gateway_options(GatewayOptions(Limits(recorded_seconds=30)))
async def test_a_call_that_takes_too_long_is_an_error_and_in_the_log(
    gateway: httpx.AsyncClient, deploy: Deploy, clock: LoopClock, log: Path
) -> None:
    await deploy(BUYER.replace('"buyer"', '"slow"').format(log=str(log)))
    ordered = asyncio.create_task(gateway.post("/v1/apps/slow/invoke", json={"items": ["slowly"]}))
    await until(lambda: bought(log) == ["slowly"])

    clock.advance(30)
    receipt = (await ordered).json()

    message = "it has not returned within 30 s (limit recorded-seconds=30, see `cornserve up --limit`)"
    assert receipt == {"lines": [f"buy: {message}"]}
    heading, reason = await app_lines(gateway, "slow")
    assert "the recorded call of buy failed" in heading
    assert reason.startswith(f"TimeoutError: {message}")


@with_gateway_options(GatewayOptions(Limits(recorded_seconds=1)))
async def test_a_call_that_finds_no_thread_in_time_never_runs(
    gateway: httpx.AsyncClient, deploy: Deploy, log: Path
) -> None:
    await deploy(BUYER.format(log=str(log)))
    orders = [asyncio.create_task(order(gateway, "slowly")) for _ in range(MAX_THREADS)]
    await until(lambda: len(bought(log)) == MAX_THREADS)

    late = await order(gateway, "apple")
    release(log)
    await asyncio.gather(*orders)
    after = await order(gateway, "pear")

    assert "it has not returned within 1 s" in late["lines"][0]
    assert after["lines"] == [{"item": "pear", "price": 4}]
    assert bought(log) == ["slowly"] * MAX_THREADS + ["pear"]


async def test_a_call_that_waits_for_a_thread_never_runs_if_its_client_leaves(
    gateway: httpx.AsyncClient, deploy: Deploy, log: Path
) -> None:
    await deploy(BUYER.format(log=str(log)))
    orders = [asyncio.create_task(order(gateway, "slowly")) for _ in range(MAX_THREADS)]
    await until(lambda: len(bought(log)) == MAX_THREADS)
    request = gateway.stream(
        "POST", "/v1/apps/buyer/invoke", json={"items": ["apple"]}, headers={"accept": "text/event-stream"}
    )

    async with request as response:
        assert "buying apple" in await anext(response.aiter_text())
        await order(gateway)  # The process of the app has the call when it runs another request.
    running = f'cornserve_gateway_requests_running{{app="buyer"}} {MAX_THREADS}.0'
    await until(lambda: exposes(gateway, running))
    release(log)
    await asyncio.gather(*orders)
    await order(gateway, "pear")

    assert bought(log) == ["slowly"] * MAX_THREADS + ["pear"]


DICE = """
import os
from cornserve import App, Task, recorded
from cornserve_echo import EchoRequest, EchoResponse, EchoTask

def note(number: int) -> None:
    pass

class Dice(Task[EchoRequest, EchoResponse]):
    def post_init(self) -> None:
        self.echo = EchoTask()

    def invoke(self, request: EchoRequest) -> EchoResponse:
        recorded(note, os.getpid() if request.text == "process" else 7)
        return self.echo.invoke(EchoRequest(text=self.echo.invoke(request).text))

app = App(name="dice", paths=[Dice()])
"""


@pytest.mark.parametrize("text", ["process", "same"])
async def test_another_process_compares_the_arguments(
    gateway: httpx.AsyncClient, deploy: Deploy, executors: EchoExecutors, clock: LoopClock, text: str
) -> None:
    await deploy(DICE)
    host = await app_host()
    body = {"text": text, "seconds": 1}
    request = asyncio.create_task(gateway.post("/v1/apps/dice/invoke", json=body))
    await until(lambda: executors.running() == 1)
    host.kill()
    clock.advance(1)
    response = await request

    if text == "same":
        assert response.json()["text"] == "same"
        return
    line = next(number for number, line in enumerate(DICE.splitlines(), start=1) if "recorded(note" in line)
    lines = f"app.py:{line} called it in the recording, app.py:{line} now"
    message = response.json()["error"]["message"]
    assert f"the arguments of note differ from the recorded ones: {lines}; " in message
    assert f"`argument 1` is {host.pid} in the recording, and " in message
