"""Log files are limited in size while processes write to them."""

from __future__ import annotations

from pathlib import Path

import pytest

from cornserve.control.launcher.local.tail import tail
from cornserve.observe import log_file
from cornserve.observe.log_file import copy_truncate, rotate, rotated_path


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(log_file, "MAX_LOG_BYTES", 10_000)
    return tmp_path / "log"


def test_log_and_rotated_file_never_exceed_twice_the_limit(log: Path) -> None:
    with log.open("ab", buffering=0) as process:
        for number in range(10_000):
            process.write(f"line {number}\n".encode())
            if number % 100 == 0:
                copy_truncate(log)
                assert log.stat().st_size <= 10_000
                assert not rotated_path(log).exists() or rotated_path(log).stat().st_size < 12_000

    assert tail(log, 1) == ["line 9999"]


def test_the_last_lines_are_read_from_log_and_rotated_file(log: Path) -> None:
    with log.open("ab", buffering=0) as process:
        process.write(b"".join(b"before %d\n" % number for number in range(1000)))
        copy_truncate(log)
        process.write(b"after 0\nafter 1\n")

    assert log.read_bytes() == b"after 0\nafter 1\n"
    assert tail(log, 4) == ["before 998", "before 999", "after 0", "after 1"]


def test_a_small_or_missing_log_is_not_changed(log: Path) -> None:
    copy_truncate(log)
    log.write_text("short\n")
    copy_truncate(log)

    assert log.read_text() == "short\n"
    assert not rotated_path(log).exists()


def test_a_log_is_truncated_also_when_it_cannot_be_copied(log: Path) -> None:
    log.write_bytes(b"x" * 20_000)
    rotated_path(log).mkdir()  # the copy fails

    copy_truncate(log)

    assert log.stat().st_size == 0


def test_rotation_keeps_one_earlier_log(log: Path) -> None:
    rotate(log)
    for text in ("first", "second"):
        log.write_text(text)
        rotate(log)

    assert not log.exists()
    assert rotated_path(log).read_text() == "second"
