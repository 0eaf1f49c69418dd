"""The end of a log."""

from __future__ import annotations

from pathlib import Path

import pytest

from cornserve.control.launcher.local.tail import MAX_BYTES, find_error, tail


def test_the_last_lines_are_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"{number}\n" for number in range(1000)))
    assert tail(log, 2) == ["998", "999"]
    assert tail(log, 0) == []
    assert len(tail(log, 2000)) == 1000


def test_of_a_huge_log_only_the_end_is_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"x" * MAX_BYTES + b"\xff\nlast")
    assert tail(log, 1) == ["last"]
    assert sum(map(len, tail(log, 10))) <= MAX_BYTES


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], ""),
        (["loading", "  killed while loading ", ""], "killed while loading"),
        (["Traceback (most recent call last):", "ValueError: no", "[W] destroy_process_group()"], "ValueError: no"),
        (["torch.OutOfMemoryError: 2 GiB", "  hint: less"], "torch.OutOfMemoryError: 2 GiB"),
    ],
)
def test_the_reason_is_the_last_exception_or_else_the_last_words(lines: list[str], said: str) -> None:
    assert find_error(lines) == said
