"""The processes of an executor, which tests stop and kill.

Tests fork executors from a server that has imported the engines. The launcher then starts another process, which only
waits for the executor: SIGKILL ends both, but SIGSTOP does not stop the executor.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil


def executor_processes(addresses: Path) -> list[psutil.Process]:
    """Returns the process that listens at the endpoint of an executor, and those that it has started, such as engines.

    Args:
        addresses: the file to which the executor has written its addresses.
    """
    port = int(addresses.read_text().splitlines()[0].rpartition(":")[2])
    listening = (each for each in psutil.net_connections("tcp") if each.status == psutil.CONN_LISTEN)
    executor = psutil.Process(next(each.pid for each in listening if each.laddr and each.laddr.port == port))
    return [executor, *executor.children(recursive=True)]


def kill(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):  # It ends with its parent.
            process.kill()


@contextmanager
def stopped(processes: Sequence[psutil.Process]) -> Iterator[None]:
    """Stops processes during the block."""
    for process in processes:
        process.suspend()
    try:
        yield
    finally:
        for process in processes:
            with suppress(psutil.NoSuchProcess):  # It has been killed.
                process.resume()
