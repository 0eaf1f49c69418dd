from __future__ import annotations

from pathlib import Path

from cornserve.control.launcher.local.tail import MAX_LINE_CHARACTERS, tail


def test_a_long_line_of_a_log_is_cut_so_that_a_status_can_hold_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(f"{'x' * 100_000}\nshort\n{'y' * MAX_LINE_CHARACTERS}")

    long, short, just = tail(log, 3)

    assert len(long) == MAX_LINE_CHARACTERS
    assert long.endswith("x …")
    assert (short, just) == ("short", "y" * MAX_LINE_CHARACTERS)
