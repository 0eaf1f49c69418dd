"""Run as `doomed_writer.py STORE SIGNAL`: creates the app "whole", and raises the signal
before the commit of the app "half"."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

from cornserve.app.spec import AppModel, AppSpec
from cornserve.control.store.base import APPS
from cornserve.control.store.sqlite import SqliteStore
from cornserve.control.store.sqlite_connection import SqliteConnection

execute = SqliteConnection.execute


async def main(path: Path, number: int) -> None:
    async def doomed(connection: SqliteConnection, statement: str, *values: object) -> list[tuple[Any, ...]]:
        if statement == "COMMIT":
            signal.raise_signal(number)
        return await execute(connection, statement, *values)

    store = await SqliteStore.open(path)
    await store.create(APPS, "whole", AppSpec(model=AppModel(id="m")))
    with patch.object(SqliteConnection, "execute", doomed):
        await store.create(APPS, "half", AppSpec(model=AppModel(id="m")))
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
