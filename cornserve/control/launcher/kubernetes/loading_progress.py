"""Observes executors while they load their models: the status of a pod does not contain their messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing

from cornserve.app.record import ReplicaState
from cornserve.control.launcher.base import ReplicaId
from cornserve.control.launcher.executor_observer import observe_executor
from cornserve.instance_secret import InstanceSecretError
from cornserve.wire.credentials import ConnectionCredentials, TlsFilesError

MAX_OBSERVED = 64
"""Executors that are observed at the same time. Others show no more than that they load."""

RECONNECT_SECONDS = 0.5


class LoadingProgress:
    """Connects to executors that load, and to no others.

    Args:
        load_credentials: reads the secret and the files for TLS, which may change. It may block.
        notify: is called after each change of a message.
    """

    def __init__(self, load_credentials: Callable[[], ConnectionCredentials], notify: Callable[[], None]) -> None:
        self._load_credentials = load_credentials
        self._notify = notify
        self._observers: dict[ReplicaId, asyncio.Task[None]] = {}
        self.messages: dict[ReplicaId, str] = {}

    def observe(self, loading: Mapping[ReplicaId, str]) -> None:
        """Observes exactly the given replicas, as far as their number allows.

        Args:
            loading: the endpoint of each executor that loads.
        """
        for replica in self._observers.keys() - loading.keys():
            self._observers.pop(replica).cancel()
            self.messages.pop(replica, None)
        for replica, endpoint in loading.items():
            if len(self._observers) >= MAX_OBSERVED:
                break
            if replica not in self._observers:
                self._observers[replica] = asyncio.create_task(self._follow(replica, endpoint))

    async def _follow(self, replica: ReplicaId, endpoint: str) -> None:
        """Records the messages of one executor. Runs until cancelled."""
        while True:
            try:
                credentials = await asyncio.to_thread(self._load_credentials)
                async with aclosing(observe_executor(endpoint, credentials)) as reports:
                    async for report in reports:
                        if report.state is ReplicaState.STARTING and self.messages.get(replica) != report.message:
                            self.messages[replica] = report.message
                            self._notify()
            except (InstanceSecretError, TlsFilesError, OSError):
                pass  # It does not listen yet, or it exits: its pod shows what is wrong.
            await asyncio.sleep(RECONNECT_SECONDS)

    async def close(self) -> None:
        observers = list(self._observers.values())
        for observer in observers:
            observer.cancel()
        await asyncio.gather(*observers, return_exceptions=True)
