"""The app hosts of a gateway that runs in the process of the test."""

from __future__ import annotations

import psutil

from tests.waiting import until


async def app_host() -> psutil.Process:
    """Returns the process of the only deployed app. Those of earlier tests end a moment after their app is deleted."""
    await until(lambda: len(app_hosts()) == 1)
    (host,) = app_hosts()
    return host


def app_hosts() -> list[psutil.Process]:
    """Returns the processes of all apps of this process."""
    servers = [child for child in psutil.Process().children() if _runs_fork_server(child)]
    return [host for server in servers for host in server.children()]


def _runs_fork_server(process: psutil.Process) -> bool:
    try:
        return "cornserve.app_host" in process.cmdline()
    except psutil.Error:  # It has ended.
        return False
