"""The formats of audio files that commands save."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from cornserve.cli.console import CliError, check_file, expanded

FORMATS: Final = {
    ".mp3": "mp3",
    ".opus": "opus",
    ".ogg": "opus",
    ".aac": "aac",
    ".flac": "flac",
    ".wav": "wav",
    ".pcm": "pcm",
}
"""The formats by the ends of file names."""


def check_audio_file(file: Path) -> None:
    """Raises `CliError` if a file cannot be written, and for a device or a pipe, which a file would replace."""
    check_file(file)
    path = expanded(file)
    if path.exists() and not path.is_file():
        raise CliError(f"cannot save {file}: it is not a regular file: give another name")
    if not os.access(path.parent, os.W_OK):  # The file is written under another name before it gets this one.
        raise CliError(f"cannot save {file}: the directory {path.parent} is not writable: give another one")


def format_of(file: Path, *, otherwise: str = "") -> str:
    """Returns the format of a file by its name. Raises `CliError` if it is unknown.

    Args:
        otherwise: another option of the user, for the error.
    """
    known = FORMATS.get(file.suffix.lower())
    if known is None:
        raise CliError(f"cannot save {file}: give a file name that ends with {', '.join(FORMATS)}{otherwise}")
    return known


@contextmanager
def replaced_file(file: Path) -> Iterator[Path]:
    """Yields a partial file, which replaces an existing one at the end. Raises `CliError` if it cannot be written."""
    from cornserve.client import ClientError  # a slow import

    path = expanded(file)
    partial = path.with_name(f"{path.name}.part")
    try:
        yield partial
        partial.replace(path)
    except ClientError:  # A timeout of the gateway is an `OSError`, too.
        raise
    except OSError as error:
        raise CliError(f"cannot save {file}: {error.strerror}") from error
    finally:
        partial.unlink(missing_ok=True)
