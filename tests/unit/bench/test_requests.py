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
        (b"\n", "is empty"),
        (b'{"prompt": 1}', "chats.jsonl:1: expected"),
        (b"[" * 100_000, "chats.jsonl:1: invalid JSON: recursion limit exceeded"),
        (b"\xff\xfe", "cannot read"),
    ],
    ids=["large", "empty", "prompt", "nested", "binary"],
)
def test_a_dataset_that_cannot_be_sent_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, message: str
) -> None:
    monkeypatch.setattr(requests, "MAX_MIB", 1)
    file = tmp_path / "chats.jsonl"
    file.write_bytes(content)

    with pytest.raises(RequestError, match=message):
        dataset(file, {})
