"""Observes the state that a running executor reports."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass

from cornserve.app.record import ReplicaState
from cornserve.control.launcher.executor_observer import observe_executor
from cornserve.control.launcher.local.state_dir import ExecutorAddresses, ReplicaDir
from cornserve.control.launcher.local.uninterrupted_thread import finish_in_thread
from cornserve.instance_secret import InstanceSecretError
from cornserve.observe.limited_log import LimitedLog
from cornserve.wire.credentials import ConnectionCredentials, TlsFilesError

log = logging.getLogger(__name__)

POLL_SECONDS = 0.05
RECONNECT_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class ExecutorStatus:
    state: ReplicaState
    message: str
    addresses: ExecutorAddresses | None = None


async def watch_executor(
    replica_dir: ReplicaDir, load_credentials: Callable[[], ConnectionCredentials]
) -> AsyncGenerator[ExecutorStatus, None]:
    """Yields the executor's status every few seconds while the executor responds. Runs until closed."""
    yield ExecutorStatus(ReplicaState.STARTING, "starting its process")
    while (addresses := replica_dir.read_addresses()) is None:
        await asyncio.sleep(POLL_SECONDS)
    limited_log = LimitedLog(log)
    while True:
        try:
            credentials = await finish_in_thread(load_credentials)
            async with aclosing(observe_executor(addresses.endpoint, credentials)) as reports:
                async for report in reports:
                    yield ExecutorStatus(report.state, report.message, addresses)
        except ConnectionRefusedError:
            pass  # It does not listen yet, or it exits.
        except (InstanceSecretError, TlsFilesError, OSError) as error:
            limited_log.warning("cannot observe replica %s: %s", replica_dir.id, error)
        await asyncio.sleep(RECONNECT_SECONDS)
