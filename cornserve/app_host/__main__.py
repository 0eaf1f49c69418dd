"""Runs a fork server: `python -m cornserve.app_host DESCRIPTOR DIR`.

The descriptor is that of its parent's socket, and the directory is for temporary files.
"""

from __future__ import annotations

import sys
from functools import partial

from cornserve.app_host.fork_server import run_fork_server
from cornserve.app_host.host import run_host
from cornserve.app_host.host_sessions import HostSessions
from cornserve.task.spec import installed_executors

if __name__ == "__main__":
    installed_executors()  # Hosts would each read the metadata of all packages.
    run_fork_server(int(sys.argv[1]), sys.argv[2], partial(run_host, create_sessions=HostSessions))
