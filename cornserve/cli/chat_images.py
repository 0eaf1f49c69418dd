"""The images of chats on the command line."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Sequence
from pathlib import Path

import typer

from cornserve.cli.console import CliError, check_file, expanded, stderr, write_file
from cornserve.cli.terminal_image import show_images, terminal_encoder

_SUFFIX = ".png"


class ChatImages:
    """Shows the images of responses in terminals that support them, and saves them.

    Args:
        save: the file of the first image. The following ones get numbers. None does not save images.

    Raises `CliError` if the file cannot be a PNG file, or cannot be written.
    """

    def __init__(self, save: Path | None) -> None:
        if save is not None:
            if save.suffix.lower() != _SUFFIX:
                raise CliError(f"--save: images are PNG files: give a file name that ends with {_SUFFIX}, not {save}")
            check_file(save)
        self._save = None if save is None else expanded(save)
        self._count = 0

    def add(self, urls: Sequence[str]) -> None:
        """Shows and saves the images of data URLs."""
        for url in urls:
            self._count += 1
            content = url.partition(",")[2]
            show_images(terminal_encoder(_SUFFIX), [content])
            if self._save is None:
                stderr().print("The response contains an image: save it with --save FILE.png", style="dim")
            else:
                self._write(self._save, b64decode(content))

    def _write(self, first: Path, content: bytes) -> None:
        file = first if self._count == 1 else first.with_stem(f"{first.stem}-{self._count}")
        write_file(file, content)
        typer.echo(str(file))
