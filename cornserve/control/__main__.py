"""Runs a local controller: `python -m cornserve.control --home DIR`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from pathlib import Path

from cornserve.control.controller import Controller
from cornserve.control.launcher.local.launcher import LocalLauncher
from cornserve.control.launcher.local.slots import Slots
from cornserve.control.store.sqlite import SqliteStore
from cornserve.home import Home
from cornserve.lifetime import told_to_stop


def main() -> int:
    parser = argparse.ArgumentParser(prog="cornserve-controller", description=__doc__)
    parser.add_argument("--home", type=Path, default=Home.default().path)
    parser.add_argument("--gpus", type=int, help="how many of the machine's GPUs to use (default: all)")
    parser.add_argument("--cpu-slots", type=int, help="without GPUs: how many executors may run (default: cores)")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    asyncio.run(control(Home(options.home), Slots.detect(gpus=options.gpus, cpu_slots=options.cpu_slots)))
    return 0


async def control(home: Home, slots: Slots) -> None:
    """Controls until told to stop. Executors run on, for the next controller to find."""
    store = await SqliteStore.open(home.store)
    launcher = LocalLauncher(home, slots)
    try:
        await launcher.start()
        controlling = asyncio.create_task(Controller(store, launcher).run())
        stopping = asyncio.create_task(told_to_stop())
        await asyncio.wait((controlling, stopping), return_when=asyncio.FIRST_COMPLETED)
        for task in (controlling, stopping):
            task.cancel()
        await asyncio.gather(stopping, return_exceptions=True)
        if controlling.done() and not controlling.cancelled():
            controlling.result()
        await asyncio.gather(controlling, return_exceptions=True)
    finally:
        await launcher.close()
        await store.close()


if __name__ == "__main__":
    sys.exit(main())
