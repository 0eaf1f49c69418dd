"""Functions that a task calls with `recorded` run once for each request."""

from __future__ import annotations

import asyncio
from pathlib import Path
from time import monotonic
from typing import Any

import httpx2 as httpx
import pytest

from cornserve.limits import Limits
from tests.unit.gateway.app_hosts import app_hosts
from tests.unit.gateway.conftest import Deploy
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


@pytest.mark.parametrize("limits", [Limits(recorded_seconds=1)])
@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("nothing", "buy: ValueError: out of stock"),
        ("slowly", "buy: it has not returned within 1 s (limit recorded-seconds=1, see `cornserve up --limit`)"),
        ("lock", "buy: its result cannot be written as JSON: Unable to serialize unknown type: <class 'module'>"),
    ],
)
async def test_a_failed_call_is_an_error_that_the_task_can_catch(
    gateway: httpx.AsyncClient, deploy: Deploy, log: Path, item: str, message: str
) -> None:
    await deploy(BUYER.format(log=str(log)))

    assert await order(gateway, item) == {"lines": [message]}


@pytest.mark.parametrize("limits", [Limits(play_seconds=1)])
async def test_calls_do_not_count_as_running_code_and_run_concurrently(
    gateway: httpx.AsyncClient, deploy: Deploy, log: Path
) -> None:
    await deploy(BUYER.format(log=str(log)))
    slow = [asyncio.create_task(order(gateway, "slowly")) for _ in range(3)]

    await until(lambda: bought(log) == ["slowly"] * 3)
    started = monotonic()
    await until(lambda: monotonic() > started + 1.5)  # longer than the limit for plays

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
