"""Shows images in terminals that support them, by kitty's graphics protocol or iTerm2's inline images."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping

from cornserve.cli.console import stderr

ROWS = 16
"""The height of an image in lines of text."""

_KITTY_PART = 4096
"""The maximum number of characters in an escape sequence of kitty."""

EncodeImage = Callable[[str], str]
"""Returns the escape sequence that shows an image file, which is given in base64."""


def terminal_encoder(file_suffix: str, environment: Mapping[str, str] = os.environ) -> EncodeImage | None:
    """Returns the encoder of the terminal. None if it does not show images, or not those of this file format.

    Args:
        file_suffix: that of the image files: ".png". kitty's protocol has no other format.
    """
    if "TMUX" in environment or "STY" in environment:
        return None  # Terminal multiplexers drop the escape sequences.
    terminal, program = environment.get("TERM", ""), environment.get("TERM_PROGRAM", "")
    if program in ("iTerm.app", "WezTerm") or environment.get("LC_TERMINAL") == "iTerm2":
        return _iterm2_sequence
    is_kitty = "kitty" in terminal or "ghostty" in terminal or program == "ghostty"
    return _kitty_sequence if is_kitty and file_suffix == ".png" else None


def show_images(encode: EncodeImage | None, images: Iterable[str]) -> None:
    """Shows image files, which are given in base64, in the terminal of the standard error, if it supports them."""
    console = stderr()
    if encode is not None and console.is_terminal:
        for image in images:
            console.file.write(encode(image))
        console.file.flush()


def _iterm2_sequence(base64: str) -> str:
    return f"\x1b]1337;File=inline=1;height={ROWS};preserveAspectRatio=1:{base64}\x07\n"


def _kitty_sequence(base64: str) -> str:
    parts = [base64[start : start + _KITTY_PART] for start in range(0, len(base64), _KITTY_PART)]
    controls = [f"a=T,f=100,r={ROWS},m=1", *["m=1"] * (len(parts) - 1)]
    controls[-1] = controls[-1].replace("m=1", "m=0")
    return "".join(f"\x1b_G{control};{part}\x1b\\" for control, part in zip(controls, parts, strict=True)) + "\n"
