from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from cornserve.bench.requests import RequestError
from cornserve.bench.settings import BenchSettings, BenchSettingsError


def sent(settings: BenchSettings, count: int) -> list[Any]:
    source = settings.request_source()
    return [json.loads(next(source).call.body or b"") for _ in islice(range(count), count)]


def contents(settings: BenchSettings, count: int) -> list[str]:
    return [body["messages"][0]["content"] for body in sent(settings, count)]


def test_missing_settings_have_defaults() -> None:
    settings = BenchSettings(app="a")
    assert (settings.shape().concurrency, settings.shape().requests, settings.prompt_words) == (8, 100, 50)
    assert BenchSettings(app="a", rate=2, duration=5).shape().concurrency is None


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"concurrency": 1, "rate": 1.0}, "--concurrency and --rate exclude each other"),
        ({"prompt": "x", "prompt_words": 3}, "--prompt and --prompt-words exclude each other"),
        ({"slo": "ttft=1s", "stream": False}, "needs a stream"),
        ({"slo": "ttft=1s", "steps": 4}, "needs a stream"),
        ({"size": "64x64", "dataset": Path("chats.jsonl")}, "--size and --dataset exclude each other"),
        ({"steps": 4, "request": Path("request.json")}, "--steps and --request exclude each other"),
        ({"voice": "ethan", "steps": 4}, "--voice and --steps exclude each other"),
        ({"speech": True, "workload": Path("w.jsonl")}, "--speech and --workload exclude each other"),
        ({"slo": "fast"}, "--slo: invalid SLO 'fast'"),
    ],
)
def test_contradicting_settings_are_an_error(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(BenchSettingsError, match=message):
        BenchSettings(app="a", **wrong)


def test_random_prompts_differ_and_are_reproducible() -> None:
    first, second = contents(BenchSettings(app="a", prompt_words=20), 2)
    assert first != second
    assert len(first.split()) == 20
    assert contents(BenchSettings(app="a", prompt_words=20), 2) == [first, second]
    assert contents(BenchSettings(app="a", prompt_words=20, seed=1), 1) != [first]


def test_a_streamed_chat_requests_its_usage() -> None:
    (body,) = sent(BenchSettings(app="a", prompt="Why?", max_tokens=5, ignore_eos=True), 1)
    chat = {"model": "a", "messages": [{"role": "user", "content": "Why?"}], "max_tokens": 5, "ignore_eos": True}
    assert body == {**chat, "stream": True, "stream_options": {"include_usage": True}}
    assert sent(BenchSettings(app="a", prompt="Why?", max_tokens=5, ignore_eos=True, stream=False), 1) == [chat]
    (unbounded,) = sent(BenchSettings(app="a", prompt="Why?", max_tokens=0, stream=False), 1)
    assert "max_tokens" not in unbounded


def test_a_size_or_steps_request_images() -> None:
    source = BenchSettings(app="a", prompt="A fox", size="64x48", steps=4, max_tokens=5).request_source()
    call = next(source).call
    assert (call.path, call.accept) == ("/v1/images/generations", "application/json")
    assert json.loads(call.body or b"") == {
        "model": "a",
        "prompt": "A fox",
        "size": "64x48",
        "num_inference_steps": 4,
    }
    first, second = sent(BenchSettings(app="a", prompt_words=3, steps=9), 2)
    assert first["prompt"] != second["prompt"]
    assert {len(body["prompt"].split()) for body in (first, second)} == {3}


def test_a_voice_requests_spoken_responses() -> None:
    (body,) = sent(BenchSettings(app="a", prompt="Why?", voice="ethan", max_tokens=5), 1)
    assert (body["modalities"], body["audio"]) == (["text", "audio"], {"voice": "ethan", "format": "pcm16"})
    assert (body["max_tokens"], body["stream"]) == (5, True)


def test_texts_to_speak_are_streamed_as_events() -> None:
    call = next(BenchSettings(app="a", prompt="Why?", speech=True, voice="anna").request_source()).call
    assert (call.path, call.accept) == ("/v1/audio/speech", "text/event-stream")
    assert json.loads(call.body or b"") == {
        "model": "a",
        "input": "Why?",
        "stream_format": "sse",
        "response_format": "pcm",
        "voice": "anna",
    }


def test_spoken_chats_of_a_workload_need_a_voice(tmp_path: Path) -> None:
    file = tmp_path / "mix.jsonl"
    lines = [
        {"format": "cornserve-planner/requests", "version": 1},
        {"arrival": 0, "text_tokens": 2, "output_modalities": ["text", "audio"]},
        {"arrival": 1, "text_tokens": 2},
        {"arrival": 2, "text_tokens": 2, "output_modalities": ["audio"]},
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(RequestError, match="spoken responses: give one of the model's voices with --voice"):
        BenchSettings(app="a", workload=file).request_source()
    spoken, text, speech = sent(BenchSettings(app="a", workload=file, voice="ethan"), 3)
    assert spoken["audio"]["voice"] == speech["voice"] == "ethan"
    assert "audio" not in text


def test_a_workload_may_contain_chats_and_requests_for_images(tmp_path: Path) -> None:
    file = tmp_path / "mix.jsonl"
    images = '{"arrival": 1, "text_tokens": 3, "output_modalities": ["image"], "output_images": [{"tokens": 16}]}'
    file.write_text(
        '{"format": "cornserve-planner/requests", "version": 1}\n{"arrival": 0, "text_tokens": 4}\n' + images
    )
    chat, image = sent(BenchSettings(app="a", workload=file, steps=4), 2)
    assert chat.keys() == {"model", "messages", "stream", "stream_options", "max_tokens"}
    assert (image["size"], image["n"], image["num_inference_steps"]) == ("64x64", 1, 4)


def test_a_workload_may_contain_images_to_change(tmp_path: Path) -> None:
    file = tmp_path / "edits.jsonl"
    edit = '{"arrival": 0, "text_tokens": 3, "images": [{"width": 8, "height": 4}], "output_modalities": ["image"]}'
    file.write_text('{"format": "cornserve-planner/requests", "version": 1}\n' + edit)
    call = next(BenchSettings(app="a", workload=file, steps=4).request_source()).call
    assert (call.path, call.content_type.partition(";")[0]) == ("/v1/images/edits", "multipart/form-data")
    assert call.body is not None
    assert all(part in call.body for part in (b'name="num_inference_steps"', b"auto", b"IEND"))


def test_the_lines_of_a_dataset_are_cycled_and_override_options(tmp_path: Path) -> None:
    file = tmp_path / "chats.jsonl"
    file.write_text('{"prompt": "one", "max_tokens": 3}\n\n{"messages": [{"role": "user", "content": "two"}]}\n')
    bodies = sent(BenchSettings(app="a", dataset=file), 3)
    assert [body["messages"][0]["content"] for body in bodies] == ["one", "two", "one"]
    assert [body["max_tokens"] for body in bodies] == [3, 64, 3]


def test_app_requests_are_repeated_or_cycled(tmp_path: Path) -> None:
    single, several = tmp_path / "one.json", tmp_path / "several.jsonl"
    single.write_text('{"text":\n "x"}')
    several.write_text('{"text": "x"}\n{"text": "y"}\n')
    assert sent(BenchSettings(app="a", request=single), 2) == [{"text": "x"}, {"text": "x"}]
    assert sent(BenchSettings(app="a", request=several), 3) == [{"text": "x"}, {"text": "y"}, {"text": "x"}]


def test_the_chats_of_a_workload_are_cycled_with_new_contents(tmp_path: Path) -> None:
    lines = [
        {"format": "cornserve-planner/requests", "version": 1},
        {"arrival": 0, "images": [{"tokens": 1}, {"tokens": 1}], "audios": [{"tokens": 1}], "output_tokens": 3},
        {"arrival": 0, "text_tokens": 2},
    ]
    (tmp_path / "mix.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    settings = BenchSettings(app="a", workload=tmp_path / "mix.jsonl", ignore_eos=True)
    source = settings.request_source()
    requests = [next(source) for _ in range(3)]
    bodies = [json.loads(request.call.body or b"") for request in requests]
    assert [request.media for request in requests] == [{"image": 2, "audio": 1}, {}, {"image": 2, "audio": 1}]
    assert [body["max_tokens"] for body in bodies] == [3, 64, 3]
    assert bodies[0]["messages"] != bodies[2]["messages"]
    assert sent(settings, 3) == bodies


def test_a_workload_that_cannot_be_sent_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "empty.jsonl"
    file.write_text('{"format": "cornserve-planner/requests", "version": 1}\n')
    with pytest.raises(RequestError, match=r"empty.jsonl contains no requests"):
        BenchSettings(app="a", workload=file).request_source()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"prompt": 1}\n', "chats.jsonl:1: expected"),
        ('{"prompt": "a"}\n{\n', "chats.jsonl:2: invalid JSON"),
        ("\n", "is empty"),
    ],
)
def test_an_invalid_dataset_is_an_error_with_the_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "chats.jsonl").write_text(text)
    with pytest.raises(RequestError, match=message):
        BenchSettings(app="a", dataset=tmp_path / "chats.jsonl").request_source()
