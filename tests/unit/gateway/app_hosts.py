"""The app hosts of a gateway that runs in the process of the test."""

from __future__ import annotations

import psutil


def app_hosts() -> list[psutil.Process]:
    """Returns the processes of all apps of this process."""
    servers = [child for child in psutil.Process().children() if _runs_fork_server(child)]
    return [host for server in servers for host in server.children()]


def _runs_fork_server(process: psutil.Process) -> bool:
    try:
        return "cornserve.app_host" in process.cmdline()
    except psutil.Error:  # It has ended.
        return False
