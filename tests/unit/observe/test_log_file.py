"""Logs do not grow without bound, while their processes write on."""

from __future__ import annotations

from pathlib import Path

import pytest

from cornserve.control.launcher.local.tail import tail
from cornserve.observe import log_file
from cornserve.observe.log_file import bound, older, set_aside


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(log_file, "MAX_BYTES", 10_000)
    return tmp_path / "log"


def test_a_process_that_writes_on_never_has_more_than_twice_the_bound(log: Path) -> None:
    with log.open("ab", buffering=0) as process:
        for number in range(10_000):
            process.write(f"line {number}\n".encode())
            if number % 100 == 0:
                bound(log)
                assert log.stat().st_size <= 10_000
                assert not older(log).exists() or older(log).stat().st_size < 12_000

    assert tail(log, 1) == ["line 9999"]


def test_the_last_lines_are_found_across_the_cut(log: Path) -> None:
    with log.open("ab", buffering=0) as process:
        process.write(b"".join(b"before %d\n" % number for number in range(1000)))
        bound(log)
        process.write(b"after 0\nafter 1\n")

    assert log.read_bytes() == b"after 0\nafter 1\n"
    assert tail(log, 4) == ["before 998", "before 999", "after 0", "after 1"]


def test_a_small_log_and_one_that_is_not_there_are_left_alone(log: Path) -> None:
    bound(log)
    log.write_text("short\n")
    bound(log)

    assert log.read_text() == "short\n"
    assert not older(log).exists()


def test_a_full_disk_does_not_keep_a_log_from_being_cut(log: Path) -> None:
    log.write_bytes(b"x" * 20_000)
    older(log).mkdir()  # what cannot be written to

    bound(log)

    assert log.stat().st_size == 0


def test_of_the_logs_of_earlier_instances_one_is_kept(log: Path) -> None:
    set_aside(log)
    for words in ("first", "second"):
        log.write_text(words)
        set_aside(log)

    assert not log.exists()
    assert older(log).read_text() == "second"
