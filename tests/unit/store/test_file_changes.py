"""Notifications of changes to files of a directory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from shutil import rmtree

import pytest

from cornserve.control.store.file_changes import FileChanges


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    directory = tmp_path / "home"
    directory.mkdir()
    (directory / "state.db").write_text("")
    return directory


@pytest.fixture
async def notified(directory: Path) -> AsyncIterator[asyncio.Event]:
    event = asyncio.Event()
    changes = FileChanges(directory, "state.db", event.set)
    yield event
    changes.close()


async def test_a_write_is_notified(directory: Path, notified: asyncio.Event) -> None:
    with (directory / "state.db").open("a") as file:
        file.write("x")

    await notified.wait()


async def test_a_new_file_and_a_replaced_one_are_notified(directory: Path, notified: asyncio.Event) -> None:
    (directory / "state.db-wal").touch()
    await notified.wait()

    notified.clear()
    (directory / "other").touch()
    (directory / "other").rename(directory / "state.db")
    await notified.wait()


async def test_a_removed_directory_is_notified(directory: Path, notified: asyncio.Event) -> None:
    rmtree(directory)

    await notified.wait()


async def test_other_files_are_not_notified(directory: Path) -> None:
    names = list[str]()
    own = FileChanges(directory, "state.db", lambda: names.append("state.db"))
    event = asyncio.Event()
    others = FileChanges(directory, "instance", event.set)

    (directory / "instance.lock").touch()

    await event.wait()
    assert names == []
    own.close()
    others.close()


async def test_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        FileChanges(tmp_path / "missing", "state.db", lambda: None)
