"""Checks the files that the command writes, before it solves anything."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from cornserve_planner.errors import InvalidInputError


def expanded(option: str, path: Path) -> Path:
    """Returns the path with the home directory of its user in place of `~`. Raises `InvalidInputError`."""
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise InvalidInputError(option, f"{path}: the home directory is unknown: give the path without ~") from error


def check_output(option: str, path: Path, suffixes: Collection[str] = ()) -> None:
    """Raises `InvalidInputError` if a file cannot be written.

    Args:
        suffixes: the supported formats; empty for any name.
    """
    if suffixes and path.suffix not in suffixes:
        raise InvalidInputError(option, f"{path}: unknown format {path.suffix!r}: use {', '.join(suffixes)}")
    path = expanded(option, path)
    try:
        path.stat()
    except FileNotFoundError:
        pass
    except OSError as error:
        raise InvalidInputError(option, f"{path} cannot be written: {error.strerror}") from error
    if path.is_dir():
        raise InvalidInputError(option, f"{path} is a directory: give a file")
    if not path.parent.is_dir():
        raise InvalidInputError(
            option, f"{path} cannot be written: the directory {path.parent} does not exist: create it"
        )
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise InvalidInputError(option, f"{path} cannot be written: permission denied: use another file")
