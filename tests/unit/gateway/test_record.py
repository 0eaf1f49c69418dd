"""`/admin/v1/apps/{name}/record`: the calls of unit tasks of one request."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2 as httpx

from tests.unit.echo_executors import EchoExecutors
from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.sources import CHATTERBOX, ECHO, STARTS
from tests.waiting import until

CAPTION = """
from cornserve import App
from cornserve_echo.stages import Caption, StageTask

llm, encoder = StageTask(seconds={"llm": 0}), StageTask(seconds={"encoder": 0})
app = App(name="caption", paths=[Caption(llm=llm, encoder=encoder)])
"""

PRINTER = """
from cornserve import App, Task
from cornserve_echo import EchoRequest, EchoResponse, EchoTask

class Printer(Task[EchoRequest, EchoResponse]):
    def post_init(self) -> None:
        self.echo = EchoTask()

    def invoke(self, request: EchoRequest) -> EchoResponse:
        print(request.text)
        return self.echo.invoke(request)

app = App(name="printer", paths=[Printer()])
"""


async def record(gateway: httpx.AsyncClient, app: str, request: object, status: int = 200) -> Any:
    response = await gateway.post(f"/admin/v1/apps/{app}/record", json=request)
    assert response.status_code == status, response.text
    return response.json()


async def test_calls_have_their_round_line_input_and_output(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy(STARTS)

    run = await record(gateway, "starts", {"text": "corn", "seconds": 0.01})

    lines = [number for number, line in enumerate(STARTS.splitlines(), start=1) if "self.echo.invoke" in line]
    assert [(call["task"], call["round"], call["line"]) for call in run["calls"]] == [
        ("EchoTask", 1, f"app.py:{lines[0]}"),
        ("EchoTask", 2, f"app.py:{lines[1]}"),
    ]
    assert [call["request"] for call in run["calls"]] == [{"text": "corn", "seconds": 0.01}, {"text": "corn"}]
    assert [call["output"]["text"] for call in run["calls"]] == ["corn", "corn"]
    assert run["response"] == {"starts": 2}  # The first requests run twice.
    assert "error" not in run


async def test_tensors_are_described_by_their_calls(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy(CAPTION)

    run = await record(gateway, "caption", {"text": "a", "images": 2})

    inputs = run["calls"][-1]["request"]["inputs"]
    assert inputs == ["<result of call 0, StageTask>", "<result of call 1, StageTask>"]
    assert {call["round"] for call in run["calls"]} == {1}


async def test_a_request_that_fails_has_its_calls_and_its_error(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy(CHATTERBOX)

    run = await record(gateway, "chatterbox", {"words": []})

    assert run["calls"] == []
    assert "IndexError: list index out of range" in run["error"]
    assert "response" not in run


async def test_a_request_has_what_its_code_has_written(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy(CHATTERBOX)
    (number,) = [number for number, line in enumerate(CHATTERBOX.splitlines(), start=1) if '"unfinished"' in line]

    other = await record(gateway, "chatterbox", {"words": ["corn"]})
    failed = await record(gateway, "chatterbox", {"words": []})

    assert [line.partition(": ")[2] for line in other["log"]] == ["word corn", "unfinished"]
    assert failed["log"][:3] == [
        f"app.py:{number}: unfinished",
        f'  File "app.py", line {number + 1}, in invoke',
        "    return Result(text=order.words[0])",
    ]
    assert failed["log"][-1] == "builtins.IndexError"


async def test_a_record_has_only_its_lines_if_the_client_repeats_an_id(
    gateway: httpx.AsyncClient, deploy: Deploy
) -> None:
    await deploy(CHATTERBOX)
    headers = {"x-request-id": "the-clients-id"}
    path = "/admin/v1/apps/chatterbox/record"

    logs = [
        (await gateway.post(path, json={"words": [word]}, headers=headers)).json()["log"] for word in ("corn", "maize")
    ]

    assert [[line.partition(": ")[2] for line in log] for log in logs] == [
        ["word corn", "unfinished"],
        ["word maize", "unfinished"],
    ]


async def test_a_record_keeps_its_lines_while_other_requests_write(
    gateway: httpx.AsyncClient, deploy: Deploy, executors: EchoExecutors
) -> None:
    await deploy(PRINTER)
    async with asyncio.TaskGroup() as tasks:
        run = tasks.create_task(record(gateway, "printer", {"text": "corn", "seconds": 0.5}))
        await until(lambda: executors.running() == 1)
        await record(gateway, "printer", {"text": "maize\n" * 1000})

    log = run.result()["log"]

    assert [line.partition(": ")[2] for line in log] == ["corn"]


async def test_a_call_that_fails_has_its_error(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy(ECHO)

    run = await record(gateway, "echo", {"text": "a", "fail": "no more corn"})

    assert "no more corn" in run["calls"][0]["error"]
    assert "output" not in run["calls"][0]
    assert "no more corn" in run["error"]


async def test_an_invalid_request_is_rejected(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy(ECHO)

    error = await record(gateway, "echo", {"texts": "a"}, status=400)

    assert "text" in error["error"]["message"]
    await record(gateway, "absent", {"text": "a"}, status=404)
