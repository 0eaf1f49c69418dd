"""Requests of files."""

from __future__ import annotations

from pathlib import Path

import pytest

from cornserve.bench import requests
from cornserve.bench.requests import RequestError, dataset


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"prompt": "' + b"x" * (2 << 20), "File too large: has more than 1 MiB"),
        (b'{"prompt": ""}\n' * 4, "has more than 3 requests"),
        (b"\n", "is empty"),
        (b'{"prompt": 1}', "chats.jsonl:1: expected"),
        (b"[" * 100_000, "chats.jsonl:1: invalid JSON: recursion limit exceeded"),
        (b"\xff\xfe", "chats.jsonl:1: invalid JSON"),
    ],
    ids=["large", "long", "empty", "prompt", "nested", "binary"],
)
def test_a_dataset_that_cannot_be_sent_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, message: str
) -> None:
    monkeypatch.setattr(requests, "MAX_MIB", 1)
    monkeypatch.setattr(requests, "MAX_LINES", 3)
    file = tmp_path / "chats.jsonl"
    file.write_bytes(content)

    with pytest.raises(RequestError, match=message):
        dataset(file, {})


def test_a_device_is_refused_before_it_is_read() -> None:
    with pytest.raises(RequestError, match=r"cannot read /dev/zero: it is a device, not a file"):
        dataset(Path("/dev/zero"), {})


def test_a_text_may_contain_other_line_breaks(tmp_path: Path) -> None:
    file = tmp_path / "chats.jsonl"
    file.write_text('{"prompt": "one\u2028two"}\n')

    assert next(dataset(file, {}))["messages"][0]["content"] == "one\u2028two"
