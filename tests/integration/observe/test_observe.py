"""Logs, metrics and traces of an instance, and the absence of client data in them."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from cornserve.home import Home
from tests.integration.cli.cli_instance import CliInstance
from tests.integration.observe.collector import Span, TraceCollector, running_collector
from tests.waiting import until

SOURCE = """
from cornserve import App, Task, recorded
from cornserve_echo import EchoRequest, EchoResponse, EchoTask

class Echo(Task[EchoRequest, EchoResponse]):
    def post_init(self) -> None:
        self.echo = EchoTask()

    def invoke(self, request: EchoRequest) -> EchoResponse:
        if request.seconds == 0.001:
            raise KeyError(request.text)
        if request.text == "count":
            recorded(len, request.text)
        first = self.echo.invoke(request)
        return self.echo.invoke(EchoRequest(text=first.text))

app = App(name="echo", paths=[Echo()])
"""


@dataclass(frozen=True, slots=True)
class ObservedInstance:
    home: Home
    http: httpx.Client
    collector: TraceCollector

    def invoke(self, body: Any, **headers: str) -> httpx.Response:
        return self.http.post("/v1/apps/echo/invoke", json=body, headers=headers)

    def logs(self) -> str:
        """Returns the logs of all processes of the instance."""
        files = [*self.home.logs.iterdir(), *self.home.replicas.glob("*/log*"), *self.home.replicas.glob("ended/*")]
        return "".join(path.read_text() for path in files)

    def request_lines(self, logger: str, response: httpx.Response) -> list[dict[str, Any]]:
        records = [json.loads(line) for line in self.logs().splitlines() if line.startswith("{")]
        id = response.headers["x-request-id"]
        return [record for record in records if record.get("logger") == logger and record["request_id"] == id]


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObservedInstance]:
    """Starts an instance with JSON logs and an access log."""
    directory = tmp_path_factory.mktemp("observe")
    machine = CliInstance(Home(directory / "home"))
    (directory / "echo.py").write_text(SOURCE)
    with pytest.MonkeyPatch.context() as patch, running_collector() as collector:
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
        patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        try:
            machine.do("up", "--detach", "--port", "0", "--cpu-slots", "1", "--log-format", "json", "--access-log")
            machine.do("deploy", str(directory / "echo.py"))
            with httpx.Client(base_url=machine.url, timeout=30) as http:
                yield ObservedInstance(machine.home, http, collector)
        finally:
            machine.run("down")
            machine.kill_everything()


async def trace_of(instance: ObservedInstance, trace: str, spans: int) -> dict[str, list[Span]]:
    """Returns a trace's spans by name, once at least `spans` have arrived."""
    await until(lambda: len(instance.collector.spans(trace)) >= spans)
    by_name: dict[str, list[Span]] = {}
    for span in instance.collector.spans(trace):
        by_name.setdefault(span.name, []).append(span)
    return by_name


async def test_one_trace_follows_a_request_through_gateway_and_executors(instance: ObservedInstance) -> None:
    trace, caller = secrets.token_hex(16), secrets.token_hex(8)

    response = await asyncio.to_thread(
        instance.invoke,
        {"text": "a b"},
        traceparent=f"00-{trace}-{caller}-01",
        tracestate="vendor=1",
        **{"x-request-id": "traced"},
    )

    assert response.status_code == 200
    spans = await trace_of(instance, trace, 8)
    (request,) = spans.pop("POST /v1/apps/{name}/invoke")
    assert (request.service, request.parent.hex()) == ("cornserve-gateway", caller)
    assert request.attributes["http.response.status_code"] == 200
    assert request.attributes["cornserve.request_id"] == response.headers["x-request-id"] == "traced"
    runs = spans.pop("run Echo")
    assert {run.parent for run in runs} == {request.id}
    attempts = spans.pop("invoke EchoTask")
    assert {(span.service, span.parent) for span in attempts} == {("cornserve-gateway", request.id)}
    assert [span.attributes["cornserve.invocation"] for span in attempts] == [0, 1]
    runs = spans.pop("run EchoExecutor")
    assert {span.service for span in runs} == {"cornserve-executor"}
    assert {span.parent for span in runs} == {span.id for span in attempts}
    assert {span.attributes["cornserve.code"] for span in [*runs, *attempts]} == {"OK"}
    assert {span.attributes["cornserve.request_id"] for span in runs} == {"traced"}
    assert spans == {}


async def test_a_recorded_call_has_a_span(instance: ObservedInstance) -> None:
    trace = secrets.token_hex(16)

    await asyncio.to_thread(instance.invoke, {"text": "count"}, traceparent=f"00-{trace}-{secrets.token_hex(8)}-01")

    (call,) = (await trace_of(instance, trace, 9))["recorded len"]
    assert call.attributes["code.function.name"] == "len"


async def test_the_span_of_a_run_that_fails_names_the_error(instance: ObservedInstance) -> None:
    trace = secrets.token_hex(16)

    body = {"text": "a", "seconds": 0.001}  # fails in the app's code
    await asyncio.to_thread(instance.invoke, body, traceparent=f"00-{trace}-{secrets.token_hex(8)}-01")

    *_, last = (await trace_of(instance, trace, 2))["run Echo"]
    assert last.attributes["error.type"] == "AppCodeError"


def test_every_process_of_the_instance_can_be_scraped(instance: ObservedInstance) -> None:
    found = {}
    for target in instance.http.get("/admin/v1/metrics/targets").json():
        (address,) = target["targets"]
        text = httpx.get(f"http://{address}/metrics").text
        found[target["labels"]["component"]] = {family.name for family in text_string_to_metric_families(text)}

    assert found.keys() == {"gateway", "controller", "executor"}
    for process, metrics in found.items():
        assert any(name.startswith(f"cornserve_{process}_") for name in metrics)
        assert "process_cpu_seconds" in metrics


async def test_log_lines_of_a_request_contain_its_id(instance: ObservedInstance) -> None:
    response = await asyncio.to_thread(instance.invoke, {"text": "a"}, **{"x-request-id": "mine"})
    failed = await asyncio.to_thread(instance.invoke, {"text": "a", "fail": "boom"}, **{"x-request-id": "failed"})

    assert response.headers["x-request-id"] == "mine"
    (line,) = instance.request_lines("cornserve.access", response)
    assert (line["app"], line["status"], line["path"]) == ("echo", 200, 0)
    (line,) = instance.request_lines("cornserve.access", failed)
    (error,) = instance.request_lines("cornserve_executors.base.invocation", failed)
    assert (failed.status_code, line["status"]) == (500, 500)
    assert (error["invocation"], error["attempt"], error["replica"].split("-")[0]) == (0, 0, "echo")


async def test_no_log_metric_or_span_contains_client_data(instance: ObservedInstance) -> None:
    marker = f"the patient is called {secrets.token_hex(8)}"
    bodies = [
        {"text": marker},
        {"text": marker, "fail": marker},  # fails in the executor
        {"text": marker, "seconds": 0.001},  # fails in the app's code
        {"text": marker, "seconds": marker},  # not a valid request
        {marker: marker},
        marker,
    ]
    for accept in ("application/json", "text/event-stream"):
        statuses = [(await asyncio.to_thread(instance.invoke, body, accept=accept)).status_code for body in bodies]
        assert statuses[2:] == [500, 400, 400, 400]
    await asyncio.to_thread(instance.http.post, "/v1/chat/completions", json={"model": "echo", "messages": marker})
    trace = secrets.token_hex(16)
    await asyncio.to_thread(instance.invoke, {"text": "last"}, traceparent=f"00-{trace}-{'1' * 16}-01")
    await trace_of(instance, trace, 8)  # spans arrive in order, so all earlier ones have arrived

    assert marker not in instance.logs()
    assert "KeyError" in instance.logs()
    for target in instance.http.get("/admin/v1/metrics/targets").json():
        assert marker not in httpx.get(f"http://{target['targets'][0]}/metrics").text
    assert marker not in "".join(map(str, instance.collector.received))


def test_every_log_line_is_json(instance: ObservedInstance, tmp_path: Path) -> None:
    instance.invoke({"text": "a"})

    for line in instance.logs().splitlines():
        record = json.loads(line)
        assert {"time", "level", "logger", "message"} <= record.keys()
