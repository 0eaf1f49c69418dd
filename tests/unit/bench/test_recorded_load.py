"""`cornserve bench --workload FILE --recorded`: loads at recorded times, on different servers."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cornserve.bench.load_generator import LoadGenerator
from cornserve.bench.requests import RequestError
from cornserve.bench.result import BenchResult, compare_runs
from cornserve.bench.run import run
from cornserve.bench.server_api import ServerName
from cornserve.bench.settings import BenchSettings, BenchSettingsError
from cornserve.bench.timed_client import TimedClient
from cornserve.cli.commands import app
from cornserve.client.address import GatewayAddress
from tests.unit.bench.test_load import CHAT, ONE, USAGE, chunks
from tests.unit.http_server import StubResponse, StubServer, json_response, serving

HEADER = {"format": "cornserve-planner/requests", "version": 1}
SECOND = b64encode(bytes(2 * 24_000)).decode()


@pytest.fixture
def server() -> Iterator[StubServer]:
    with serving() as server:
        yield server


def workload(directory: Path, *requests: dict[str, Any]) -> Path:
    file = directory / "requests.jsonl"
    file.write_text(
        "".join(
            json.dumps({"text_tokens": 3, **line} if line != HEADER else line) + "\n" for line in (HEADER, *requests)
        )
    )
    return file


async def send(server: StubServer, settings: BenchSettings) -> LoadGenerator:
    async def show_progress(load: LoadGenerator) -> None: ...

    return await run(GatewayAddress.resolve(server.url), settings.request_source(), settings, show_progress)


def texts(server: StubServer) -> list[str]:
    return [body["messages"][0]["content"][-1]["text"] for _, body in server.requests]


async def test_each_request_is_sent_once_at_its_time_and_after_those_it_depends_on(
    server: StubServer, tmp_path: Path
) -> None:
    file = workload(
        tmp_path,
        {"arrival": 5.0, "id": "a", "text_tokens": 1},
        {"arrival": 5.0, "id": "b", "after": ["a"], "delay": 0.05, "text_tokens": 2},
        {"arrival": 5.1, "text_tokens": 3},
        {"arrival": 5.1, "after": ["b"], "text_tokens": 4},
    )
    server.on(CHAT, json_response({"error": {"message": "busy"}}, 429), chunks(ONE, USAGE))

    load = await send(server, BenchSettings(app="a", workload=file, recorded=True, warmup=0))

    counts = BenchResult.from_run(load, BenchSettings(app="a"), server.url).requests
    assert (counts.offered, counts.sent, counts.answered, counts.failed) == (4, 4, 3, 1)
    due = [sample.due for sample in load.statistics.samples]
    assert min(due) >= 0.05  # The second one waits for the failed first one.
    assert pytest.approx(0.1, abs=1e-6) in due
    assert sorted(len(text.split()) for text in texts(server)) == [1, 2, 3, 4]


async def test_the_recorded_times_are_scaled_to_a_rate(server: StubServer, tmp_path: Path) -> None:
    file = workload(tmp_path, *({"arrival": 100.0 * number} for number in range(5)))
    server.on(CHAT, chunks(ONE))

    load = await send(server, BenchSettings(app="a", workload=file, recorded=True, rate=100, warmup=1))

    due = sorted(sample.due for sample in load.statistics.samples)
    assert due == pytest.approx([0.0, 0.01, 0.02, 0.03, 0.04])
    assert len(server.requests) == 6


async def test_requests_that_an_interruption_prevents_are_counted(server: StubServer, tmp_path: Path) -> None:
    file = workload(tmp_path, {"arrival": 0.0}, {"arrival": 1e6}, {"arrival": 2e6})
    server.on(CHAT, chunks(ONE))
    settings = BenchSettings(app="a", workload=file, recorded=True)
    async with TimedClient(GatewayAddress.resolve(server.url)) as client:
        load = LoadGenerator(settings.shape(), settings.request_source(), client, 0)
        running = asyncio.create_task(load.run())
        while not load.statistics.samples:
            await asyncio.sleep(0)
        load.stop()
        await running

    counts = BenchResult.from_run(load, settings, server.url).requests
    assert (counts.offered, counts.sent, counts.answered) == (3, 1, 1)


def test_equal_seeds_have_equal_contents_in_a_run_and_others_in_the_next(tmp_path: Path) -> None:
    file = workload(tmp_path, *({"arrival": 0.0, "text_tokens": 9, "seed": seed} for seed in (7, 8, 7)))
    settings = BenchSettings(app="a", workload=file, recorded=True)

    def contents(run: int) -> list[bytes | None]:
        source = settings.request_source(run)
        return [next(source).call.body for _ in range(3)]

    first, second, third = contents(0)
    assert first == third != second
    assert contents(0) == [first, second, third]
    assert first not in contents(1)


def test_both_runs_of_a_load_are_compared(server: StubServer, tmp_path: Path) -> None:
    file = workload(tmp_path, *({"arrival": 0.01 * number} for number in range(4)))
    server.on("GET /v1/models", json_response({"object": "list", "data": [{"id": "a/b", "object": "model"}]}))
    server.on(CHAT, chunks(ONE, USAGE))

    result = CliRunner().invoke(
        app, ["bench", "a/b", "--workload", str(file), "--recorded", "--server", "vllm", "--json", "--url", server.url]
    )

    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["requests"] == {"offered": 4, "sent": 4, "answered": 4, "failed": 0, "unfinished": 0}
    assert document["noise"]["e2e_p50"] >= 0
    assert len([call for call, _ in server.requests if call == CHAT]) == 2 * (1 + 4)
    first = BenchResult.model_validate(document)
    assert compare_runs(first, first).requests_per_second == 0


async def test_spoken_chats_of_vllm_omni_have_audio_in_their_contents(server: StubServer, tmp_path: Path) -> None:
    file = workload(tmp_path, {"arrival": 0.0, "output_modalities": ["text", "audio"]})
    spoken = {"choices": [{"index": 0, "delta": {"content": SECOND}}], "modality": "audio"}
    server.on(CHAT, chunks(ONE, spoken, spoken, USAGE))

    load = await send(
        server, BenchSettings(app="a", workload=file, recorded=True, voice="ethan", server="vllm-omni", warmup=0)
    )

    (sample,) = load.statistics.samples
    assert (sample.chunks, sample.audio_seconds, sample.tokens) == (1, 2, 3)


async def test_texts_to_speak_are_events_without_names_or_samples(server: StubServer, tmp_path: Path) -> None:
    file = workload(tmp_path, {"arrival": 0.0, "output_modalities": ["audio"]})
    delta, done = {"type": "speech.audio.delta", "audio": SECOND}, {"type": "speech.audio.done"}
    answers: dict[ServerName, StubResponse] = {
        "vllm-omni": chunks(delta, done),
        "dynamo": StubResponse(bytes(2 * 24_000), type="audio/pcm"),
    }
    for name, answer in answers.items():
        server.on("POST /v1/audio/speech", answer)
        load = await send(server, BenchSettings(app="a", workload=file, recorded=True, server=name, warmup=0))

        assert not load.statistics.errors, name
        assert [sample.audio_seconds for sample in load.statistics.samples] == [1], name
        assert ("stream_format" in server.requests[-1][1]) == (name == "vllm-omni")


async def test_dynamo_has_the_steps_of_images_in_an_extension(server: StubServer, tmp_path: Path) -> None:
    file = workload(tmp_path, {"arrival": 0.0, "output_modalities": ["image"]})
    server.on("POST /v1/images/generations", json_response({"data": []}))
    names: tuple[ServerName, ...] = ("sglang", "dynamo")
    for name in names:
        await send(server, BenchSettings(app="a", workload=file, recorded=True, server=name, steps=4, warmup=0))

    sglang, dynamo = (body for _, body in server.requests)
    assert sglang["num_inference_steps"] == 4
    assert dynamo["nvext"] == {"num_inference_steps": 4}


@pytest.mark.parametrize(
    ("server_name", "modalities", "reason"),
    [
        ("vllm", ["text", "audio"], "does not serve chats with spoken responses"),
        ("sglang", ["audio"], "does not serve texts to speak"),
        ("vllm", ["image"], "does not serve images"),
    ],
)
def test_a_workload_that_a_server_does_not_serve_is_refused(
    tmp_path: Path, server_name: Any, modalities: list[str], reason: str
) -> None:
    file = workload(tmp_path, {"arrival": 0.0, "output_modalities": modalities})
    with pytest.raises(RequestError, match=reason):
        BenchSettings(app="a", workload=file, server=server_name, voice="ethan").request_source()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"recorded": True}, "--recorded needs --workload"),
        (
            {"recorded": True, "concurrency": 2, "workload": "w.jsonl"},
            "--recorded and --concurrency exclude",
        ),
        ({"server": "vllm", "size": "64x64"}, "does not serve images"),
        ({"server": "sglang", "request": "r.json"}, "does not serve requests of an app"),
    ],
)
def test_settings_that_do_not_fit_together_are_an_error(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(BenchSettingsError, match=message):
        BenchSettings(app="a", **wrong)


def test_a_file_without_a_rate_cannot_be_scaled(tmp_path: Path) -> None:
    file = workload(tmp_path, {"arrival": 1.0})
    with pytest.raises(RequestError, match="no recorded rate"):
        BenchSettings(app="a", workload=file, recorded=True, rate=2.0).request_source()
