#!/usr/bin/env python3
"""The CPU time of a gateway while browsers watch the console, and of the page: `python benchmarks/console.py`.

It starts a gateway whose store has apps with replicas that do not run, opens the streams that the page reads, and then
the page in Chromium. Each update of the page changes the rows of all apps.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import psutil
from aiohttp import ClientError, ClientSession

from benchmarks.harness.console_page import measure_page
from benchmarks.harness.instance import free_port
from cornserve.app.record import AppStatus, GroupStatus, Phase, ReplicaState, ReplicaStatus
from cornserve.app.spec import AppModel, AppSpec
from cornserve.control.store.base import APPS
from cornserve.control.store.sqlite import SqliteStore
from cornserve.home import Home
from cornserve.instance_secret import InstanceSecret

START_SECONDS = 60


async def main() -> None:
    options = _parser().parse_args()
    port = free_port()
    if options.quick:
        options.seconds, options.updates = 4.0, 3
    with tempfile.TemporaryDirectory() as directory:
        home = Home(Path(directory))
        home.create_private()
        InstanceSecret.load_or_create(home.secret)
        await _write_apps(home, options.apps, options.replicas)
        command = ["-m", "cornserve.gateway", "--home", directory, "--port", str(port)]
        gateway = await asyncio.create_subprocess_exec(sys.executable, *command)
        try:
            await _measure(options, port, psutil.Process(gateway.pid))
        finally:
            gateway.terminate()
            await gateway.wait()


async def _write_apps(home: Home, apps: int, replicas: int) -> None:
    store = await SqliteStore.open(home.store)
    try:
        for number in range(apps):
            name = f"app-{number:03}"
            record = await store.create(APPS, name, AppSpec(model=AppModel(id="model")))
            count = replicas // apps
            members = [ReplicaStatus(id=f"{name}-{n}", state=ReplicaState.READY) for n in range(count)]
            group = GroupStatus(key=name, executor="llm", gpus=1, wanted=count, replicas=members)
            status = AppStatus(phase=Phase.SERVING, generation=record.generation, groups=[group])
            await store.update_status(APPS, name, status, record.version)
    finally:
        await store.close()


async def _measure(options: argparse.Namespace, port: int, gateway: psutil.Process) -> None:
    url = f"http://127.0.0.1:{port}/admin/v1"
    async with ClientSession(base_url=f"{url}/", read_bufsize=1 << 22) as session:
        await _wait_until_ready(session)
        idle = await _cpu_share(gateway, options.seconds)
        received = Counter[str]()
        watching = [asyncio.create_task(_watch(session, received)) for _ in range(options.consoles)]
        await asyncio.sleep(3)
        received.clear()
        share = await _cpu_share(gateway, options.seconds)
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)
    figures = {
        "cpu_share": share,
        "idle_cpu_share": idle,
        "updates_per_second": received["events"] / options.consoles / options.seconds,
        "update_bytes": received["bytes"] / received["events"],
        "page": await measure_page(f"http://127.0.0.1:{port}", options.apps, options.updates),
    }
    if options.json:
        print(json.dumps(figures, indent=2))
        return
    print(f"{options.apps} apps, {options.replicas} replicas, {options.consoles} consoles")
    print(f"gateway: {share:.2%} of a core, without consoles {idle:.2%}")
    rate, size = figures["updates_per_second"], figures["update_bytes"] / 1000
    print(f"updates: {rate:.2f} per second and console, {size:.0f} kB each")
    page = figures["page"]
    print(f"page: first paint after {page['first_paint_seconds']:.2f} s, all rows after {page['rows_seconds']:.2f} s")
    median, most = page["script_ms_per_update"], page["most_script_ms_per_update"]
    print(f"scripts of the page: {median:.0f} ms of CPU time per update, at most {most:.0f} ms")


async def _wait_until_ready(session: ClientSession) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            async with session.get("overview") as response:
                if response.status == 200 and (await response.json())["apps"]:
                    return
        except ClientError:
            pass
        if time.monotonic() > deadline:
            raise TimeoutError("the gateway does not answer")
        await asyncio.sleep(0.2)


async def _watch(session: ClientSession, received: Counter[str]) -> None:
    async with session.get("overview/events") as response:
        async for line in response.content:
            if line.startswith(b"data: "):
                received.update(events=1, bytes=len(line))


async def _cpu_share(process: psutil.Process, seconds: float) -> float:
    """Returns the CPU time of a process in the next seconds, as a share of a core."""
    before, started = _cpu_seconds(process), time.monotonic()
    await asyncio.sleep(seconds)
    return (_cpu_seconds(process) - before) / (time.monotonic() - started)


def _cpu_seconds(process: psutil.Process) -> float:
    """Returns the CPU time of the threads of a process. The clock of processes counts short work too low."""
    tasks = Path(f"/proc/{process.pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="console.py", description=__doc__)
    parser.add_argument("--apps", type=int, default=200)
    parser.add_argument("--replicas", type=int, default=2000, help="replicas of all apps")
    parser.add_argument("--consoles", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--updates", type=int, default=20, help="updates of the page in Chromium")
    parser.add_argument("--quick", action="store_true", help="check that the script runs: 4 seconds and 3 updates")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    return parser


if __name__ == "__main__":
    asyncio.run(main())
