"""Removes what outlives the processes of an instance: its executors and the records of its apps.

The caller must hold the home's lock and no controller may run: it would start the executors again.
"""

from __future__ import annotations

from collections.abc import Callable

from cornserve.control.launcher.local.device_slots import DeviceSlots
from cornserve.control.launcher.local.launcher import LocalLauncher
from cornserve.control.store.base import APPS
from cornserve.control.store.sqlite import SqliteStore
from cornserve.home import Home


async def stop_all_executors(home: Home, report: Callable[[str], None], *, drain_seconds: float = 30) -> None:
    """Stops all executors of a home, including those of killed instances, and waits until they have exited."""
    launcher = LocalLauncher(home, DeviceSlots.cpu(0), drain_seconds=drain_seconds)
    await launcher.start()
    try:
        running = len(launcher.replicas())
        if running:
            report(f"stopping {running} executor{'s' if running > 1 else ''}")
        await launcher.prune(set())
        async for replicas in launcher.watch():
            if not replicas:
                return
    finally:
        await launcher.close()


async def delete_apps(home: Home) -> list[str]:
    """Deletes the store with the records of all apps, and returns the names of the apps.

    Raises `StoreUnavailableError` if the store cannot be read: a repair may save its apps.
    """
    if not home.store.exists():
        return []
    store = await SqliteStore.open(home.store)
    try:
        listing = await store.list(APPS)
        names = [record.name for record in listing.records] + [record.name for record in listing.unreadable]
    finally:
        await store.close()
    for suffix in ("", "-wal", "-shm", "-lock"):
        home.store.with_name(f"{home.store.name}{suffix}").unlink(missing_ok=True)
    home.apps_file.unlink(missing_ok=True)
    return names
