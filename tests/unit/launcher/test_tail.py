"""Tests of reading the end of a log."""

from __future__ import annotations

from pathlib import Path

import pytest

from cornserve.control.launcher.local.tail import MAX_BYTES, tail
from cornserve.control.launcher.log_excerpts import MAX_LINE_CHARACTERS, find_error


def test_the_last_lines_are_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"{number}\n" for number in range(1000)))
    assert tail(log, 2) == ["998", "999"]
    assert tail(log, 0) == []
    assert len(tail(log, 2000)) == 1000


def test_only_the_end_of_a_large_log_is_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"x" * MAX_BYTES + b"\xff\nlast")
    assert tail(log, 1) == ["last"]
    assert sum(map(len, tail(log, 10))) <= MAX_BYTES


def test_a_long_line_is_cut(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(f"{'x' * 100_000}\nshort\n{'y' * MAX_LINE_CHARACTERS}")

    long, short, longest = tail(log, 3)

    assert len(long) == MAX_LINE_CHARACTERS
    assert long.endswith("x …")
    assert (short, longest) == ("short", "y" * MAX_LINE_CHARACTERS)


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        ([], ""),
        (["loading", "  killed while loading ", ""], "killed while loading"),
        (["Traceback (most recent call last):", "ValueError: no", "[W] destroy_process_group()"], "ValueError: no"),
        (["2026-11-29 14:57:42,102 ERROR cornserve.executor no config.json"], "no config.json"),
        (["torch.OutOfMemoryError: 2 GiB", "  hint: less"], "torch.OutOfMemoryError: 2 GiB"),
    ],
)
def test_the_error_is_the_last_exception_or_the_last_line(lines: list[str], error: str) -> None:
    assert find_error(lines) == error
