from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from cornserve.bench.requests import RequestError
from cornserve.bench.settings import Settings, SettingsError


def sent(settings: Settings, count: int) -> list[Any]:
    work = settings.work()
    return [json.loads(next(work).body or b"") for _ in islice(range(count), count)]


def contents(settings: Settings, count: int) -> list[str]:
    return [body["messages"][0]["content"] for body in sent(settings, count)]


def test_what_is_not_said_has_defaults() -> None:
    settings = Settings(app="a")
    assert (settings.shape.concurrency, settings.shape.requests, settings.prompt_words) == (8, 100, 50)
    assert Settings(app="a", rate=2, duration=5).shape.concurrency is None


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"concurrency": 1, "rate": 1.0}, "--concurrency and --rate exclude each other"),
        ({"prompt": "x", "prompt_words": 3}, "--prompt and --prompt-words exclude each other"),
        ({"slo": "ttft=1s", "stream": False}, "needs a stream"),
        ({"slo": "fast"}, "--slo: 'fast' is no SLO"),
    ],
)
def test_what_does_not_go_together_is_said(wrong: dict[str, Any], complaint: str) -> None:
    with pytest.raises(SettingsError, match=complaint):
        Settings(app="a", **wrong)


def test_random_prompts_differ_and_are_the_same_in_every_run() -> None:
    first, second = contents(Settings(app="a", prompt_words=20), 2)
    assert first != second
    assert len(first.split()) == 20
    assert contents(Settings(app="a", prompt_words=20), 2) == [first, second]
    assert contents(Settings(app="a", prompt_words=20, seed=1), 1) != [first]


def test_a_streamed_chat_asks_how_many_tokens_there_were() -> None:
    (body,) = sent(Settings(app="a", prompt="Why?", max_tokens=5, ignore_eos=True), 1)
    chat = {"model": "a", "messages": [{"role": "user", "content": "Why?"}], "max_tokens": 5, "ignore_eos": True}
    assert body == {**chat, "stream": True, "stream_options": {"include_usage": True}}
    assert sent(Settings(app="a", prompt="Why?", max_tokens=5, ignore_eos=True, stream=False), 1) == [chat]
    (unbounded,) = sent(Settings(app="a", prompt="Why?", max_tokens=0, stream=False), 1)
    assert "max_tokens" not in unbounded


def test_a_datasets_lines_take_turns_and_have_options_of_their_own(tmp_path: Path) -> None:
    file = tmp_path / "chats.jsonl"
    file.write_text('{"prompt": "one", "max_tokens": 3}\n\n{"messages": [{"role": "user", "content": "two"}]}\n')
    bodies = sent(Settings(app="a", dataset=file), 3)
    assert [body["messages"][0]["content"] for body in bodies] == ["one", "two", "one"]
    assert [body["max_tokens"] for body in bodies] == [3, 64, 3]


def test_an_apps_own_requests_are_one_or_take_turns(tmp_path: Path) -> None:
    one, several = tmp_path / "one.json", tmp_path / "several.jsonl"
    one.write_text('{"text":\n "x"}')
    several.write_text('{"text": "x"}\n{"text": "y"}\n')
    assert sent(Settings(app="a", request=one), 2) == [{"text": "x"}, {"text": "x"}]
    assert sent(Settings(app="a", request=several), 3) == [{"text": "x"}, {"text": "y"}, {"text": "x"}]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [('{"prompt": 1}\n', "chats.jsonl:1: neither"), ("{}\n{\n", "chats.jsonl:2: no JSON"), ("\n", "is empty")],
)
def test_a_dataset_that_is_none_is_refused_with_its_line(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "chats.jsonl").write_text(text)
    with pytest.raises(RequestError, match=complaint):
        Settings(app="a", dataset=tmp_path / "chats.jsonl").work()
