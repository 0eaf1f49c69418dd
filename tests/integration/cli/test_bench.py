"""`cornserve bench` with the echo app."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2 as httpx
import pytest

from tests.integration.cli.cli_instance import CliInstance, write_app
from tests.waiting import until


@pytest.fixture(scope="module")
def serving(session_instance: CliInstance, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliInstance]:
    session_instance.deploy(write_app(tmp_path_factory.mktemp("apps"), "echo"))
    yield session_instance
    session_instance.delete_apps()


@pytest.fixture
def request_file(tmp_path: Path) -> Callable[..., str]:
    def write(**request: object) -> str:
        (tmp_path / "request.json").write_text(json.dumps({"text": "a b c d", **request}))
        return str(tmp_path / "request.json")

    return write


def test_latencies_and_throughput_are_those_of_the_app(
    serving: CliInstance, request_file: Callable[..., str], tmp_path: Path
) -> None:
    saved = tmp_path / "result.json"
    load = ("--request", request_file(seconds=0.2), "-c", "4", "-n", "12", "--slo", "tbt=10s", "--save", str(saved))
    result = serving.json("bench", "echo", *load)
    assert result["requests"] == {"offered": 12, "sent": 12, "answered": 12, "failed": 0, "unfinished": 0}
    assert result["e2e_ms"]["p50"] > 200
    assert result["e2e_ms"]["p50"] > result["ttft_ms"]["p50"] > 50
    assert 12 / result["seconds"] == pytest.approx(result["requests_per_second"], rel=0.01)
    assert (result["output_tokens"], result["tokens_are"]) == (48, "pieces")
    assert result["goodput"]["met"] == len(result["samples"]) == 12
    assert json.loads(saved.read_text()) == result


@pytest.mark.slow
def test_an_open_loop_sends_at_its_rate_regardless_of_responses(
    serving: CliInstance, request_file: Callable[..., str]
) -> None:
    load = ("--request", request_file(seconds=0.5), "--rate", "40", "--duration", "1")
    result = serving.json("bench", "echo", *load)
    due = [sample["due"] for sample in result["samples"]]
    assert max(due) < 1
    assert sum(due < 0.5 for due in due) > 5  # sent before the first response


def test_errors_are_counted_separately_from_responses(serving: CliInstance, request_file: Callable[..., str]) -> None:
    load = ("--request", request_file(fail="out of paper"), "--no-stream", "-n", "5", "--warmup", "0")
    done = serving.run("bench", "echo", *load)
    assert done.returncode == 1
    assert done.stderr == (
        "error: none of the 5 requests to 'echo' was answered: see the errors above, and `cornserve logs echo`\n"
    )
    assert "5 × 500 internal" in done.stdout


@pytest.mark.slow
def test_an_unsuitable_request_is_rejected_before_the_load(
    serving: CliInstance, request_file: Callable[..., str]
) -> None:
    done = serving.run("bench", "echo")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: echo did not respond to the warm-up: the app 'echo' does not support")
    assert done.stderr.endswith(": use --request\n")
    done = serving.run("bench", "another")
    advice = "see `cornserve status`, deploy it with `cornserve deploy`, or give one of: echo"
    assert done.stderr == f"error: no app 'another' serves at {serving.url}: {advice}\n"


@pytest.mark.slow
async def test_ctrl_c_shows_the_results_so_far(serving: CliInstance, request_file: Callable[..., str]) -> None:
    before = answered(serving)
    with serving.start("bench", "echo", "--request", request_file(), "-n", "1000000") as running:
        await until(lambda: answered(serving) > before + 20)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate()
    assert (running.returncode, err) == (130, "")
    assert "Interrupted" in out


def answered(instance: CliInstance) -> float:
    """Returns the number of successful requests in the gateway's metrics."""
    metrics = httpx.get(f"{instance.url}/metrics").text
    match = re.search(r'^cornserve_gateway_requests_total{app="echo",status="200"} (.+)$', metrics, re.MULTILINE)
    return float(match[1]) if match else 0.0
