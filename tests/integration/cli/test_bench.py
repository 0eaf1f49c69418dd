"""What `cornserve bench` measures of an app that takes 0.2 s for four words."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2 as httpx
import pytest

from cornserve.home import Home
from tests.integration.cli.machine import Machine, write_app
from tests.waiting import until


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    machine = Machine(Home(tmp_path_factory.mktemp("home")))
    try:
        machine.up()
        machine.do("deploy", write_app(tmp_path_factory.mktemp("apps"), "echo"))
        yield machine
    finally:
        machine.run("down")
        machine.kill_everything()


@pytest.fixture
def request_file(tmp_path: Path) -> Callable[..., str]:
    def write(**request: object) -> str:
        (tmp_path / "request.json").write_text(json.dumps({"text": "a b c d", **request}))
        return str(tmp_path / "request.json")

    return write


def test_latencies_and_throughput_are_those_of_the_app(
    serving: Machine, request_file: Callable[..., str], tmp_path: Path
) -> None:
    saved = tmp_path / "result.json"
    load = ("--request", request_file(seconds=0.2), "-c", "4", "-n", "12", "--slo", "tbt=10s", "--save", str(saved))
    result = serving.json("bench", "echo", *load)
    assert result["requests"] == {"sent": 12, "answered": 12, "failed": 0, "unfinished": 0}
    assert result["e2e_ms"]["p50"] > 200 > result["ttft_ms"]["p50"] > 50
    assert 12 / result["seconds"] == pytest.approx(result["requests_per_second"], rel=0.01)
    assert (result["output_tokens"], result["tokens_are"]) == (48, "pieces")
    assert result["goodput"]["met"] == len(result["samples"]) == 12
    assert json.loads(saved.read_text()) == result


def test_an_open_loop_sends_whatever_is_in_flight(serving: Machine, request_file: Callable[..., str]) -> None:
    load = ("--request", request_file(seconds=0.5), "--rate", "40", "--duration", "1")
    result = serving.json("bench", "echo", *load)
    due = [sample["due"] for sample in result["samples"]]
    assert max(due) < 1
    assert sum(due < 0.5 for due in due) > 5  # sent before the first answer


def test_errors_are_counted_and_are_no_answers(serving: Machine, request_file: Callable[..., str]) -> None:
    load = ("--request", request_file(fail="out of paper"), "--no-stream", "-n", "5", "--warmup", "0")
    done = serving.run("bench", "echo", *load)
    assert done.returncode == 1
    assert done.stderr == "error: no request was answered\n"
    assert "5 × 500 internal" in done.stdout


def test_what_does_not_fit_the_app_is_said_before_there_is_load(
    serving: Machine, request_file: Callable[..., str]
) -> None:
    done = serving.run("bench", "echo")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: echo did not answer the warm-up: the app 'echo' takes no chats")
    done = serving.run("bench", "another")
    assert done.stderr == f"error: 'another' is not served at {serving.url}; served: echo\n"


async def test_ctrl_c_shows_what_there_is(serving: Machine, request_file: Callable[..., str]) -> None:
    before = answered(serving)
    with serving.start("bench", "echo", "--request", request_file(), "-n", "1000000") as running:
        await until(lambda: answered(serving) > before + 20)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate()
    assert (running.returncode, err) == (130, "")
    assert "Interrupted" in out


def answered(machine: Machine) -> float:
    """Requests, as the gateway counts them."""
    metrics = httpx.get(f"{machine.url}/metrics").text
    match = re.search(r'^cornserve_gateway_requests_total{app="echo",status="200"} (.+)$', metrics, re.MULTILINE)
    return float(match[1]) if match else 0.0
