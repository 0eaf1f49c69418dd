"""Images in terminals."""

from __future__ import annotations

import re

import pytest

from cornserve.cli.terminal_image import terminal_encoder


@pytest.mark.parametrize(
    ("suffix", "environment"),
    [
        (".png", {"TERM": "xterm-256color"}),
        (".png", {"TERM": "xterm-kitty", "TMUX": "/tmp/tmux"}),
        (".png", {"TERM": "screen", "STY": "1", "TERM_PROGRAM": "iTerm.app"}),
        (".webp", {"TERM": "xterm-kitty"}),
        (".png", {}),
    ],
)
def test_other_terminals_show_no_image(suffix: str, environment: dict[str, str]) -> None:
    assert terminal_encoder(suffix, environment) is None


@pytest.mark.parametrize("environment", [{"TERM_PROGRAM": "iTerm.app"}, {"LC_TERMINAL": "iTerm2"}])
def test_iterm2_gets_the_file_in_one_sequence(environment: dict[str, str]) -> None:
    encode = terminal_encoder(".webp", environment)

    assert encode is not None
    assert re.fullmatch("\x1b]1337;File=inline=1;[^:]+:QUJD\x07\n", encode("QUJD"))


@pytest.mark.parametrize("environment", [{"TERM": "xterm-kitty"}, {"TERM": "xterm-ghostty"}])
@pytest.mark.parametrize("length", [4, 4096, 4100, 9000])
def test_kitty_gets_the_file_in_parts_of_which_the_last_one_is_marked(environment: dict[str, str], length: int) -> None:
    encode, file = terminal_encoder(".png", environment), "QUJD" * (length // 4)

    assert encode is not None
    parts = re.findall("\x1b_G([^;]*);([^\x1b]*)\x1b", encode(file))
    assert "".join(part for _, part in parts) == file
    assert all(len(part) <= 4096 for _, part in parts)
    assert parts[0][0].startswith("a=T,f=100,")
    assert [control.rpartition("m=")[2] for control, _ in parts] == ["1"] * (len(parts) - 1) + ["0"]
