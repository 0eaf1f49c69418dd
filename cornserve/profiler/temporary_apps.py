"""Temporary apps that run one option. They are deleted at the end, even if this process is killed."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from uuid import uuid4

from cornserve.app.record import AppView, GroupStatus, ReplicaState
from cornserve.app.spec import AppSpec
from cornserve.client import ApiStatusError, Client, ClientError
from cornserve.control.executor_groups import app_group
from cornserve.control.launcher.base import AppOwner
from cornserve.task.spec import ExecutorSpec

PREFIX = "cornserve-profile-"
"""The beginning of the names of temporary apps. `remove_temporary_apps` deletes all apps with such a name."""

POLL_SECONDS = 0.05


class TemporaryAppError(Exception):
    """A temporary app did not start. The message is for users."""


class SlowStartError(TemporaryAppError):
    """A temporary app was still starting at the end of its time. Another start may succeed."""


@dataclass(frozen=True, slots=True)
class TemporaryApp:
    """A temporary app that serves. `startup`: seconds until its option could serve."""

    view: AppView
    group: GroupStatus
    startup: float

    @property
    def name(self) -> str:
        return self.view.name


class TemporaryApps:
    """The temporary apps of one profiler. Their executors differ from those of all other apps.

    Args:
        prefix: the beginning of their names, which a controller removes if this process is killed.
    """

    def __init__(self, client: Client, prefix: str | None = None) -> None:
        self._client = client
        self._run = uuid4().hex[:8]
        self._prefix = prefix
        self._count = 0

    def new_name(self) -> str:
        self._count += 1
        return f"{self._prefix or self._own_prefix}{self._count}"

    @property
    def _own_prefix(self) -> str:
        return f"{PREFIX}{self._run}-"

    @property
    def restart_id(self) -> str:
        """The id of the restart of the apps: no other app has executors with it."""
        return self._run

    def start(self, name: str, spec: AppSpec, executor: ExecutorSpec, timeout: float) -> TemporaryApp:
        """Deploys an app and waits until all of its replicas serve.

        Raises `TemporaryAppError` if it fails, and `SlowStartError` after `timeout` s.
        """
        key = app_group(executor, spec, AppOwner(name, "")).key
        started = time.monotonic()
        self._client.deploy(spec, name=name, wait=False)
        startup: float | None = None
        while True:
            view = self._client.app(name)
            group = next((group for group in view.status.groups if group.key == key), None)
            if startup is None and group is not None and group.ready:
                startup = time.monotonic() - started
            if group is not None and group.ready == spec.replicas_of(executor.executor) and self._serves(view):
                assert startup is not None
                return TemporaryApp(view, group, startup)
            if view.phase == "failed":
                raise TemporaryAppError("\n".join([view.status.message, *view.status.logs[-3:]]))
            if time.monotonic() - started > timeout:
                raise SlowStartError(f"does not serve after {timeout:.0f} s: {_activity(view)}")
            time.sleep(POLL_SECONDS)

    @property
    def _gateway(self) -> list[str]:
        """The arguments of the second process."""
        cluster = self._client.address.cluster
        return [self._client.url] if cluster is None else [cluster.context or "", cluster.namespace or ""]

    def _serves(self, view: AppView) -> bool:
        return view.phase == "serving" and view.name in self._client.models()

    def exists(self, name: str) -> bool:
        """Raises `ClientError` if the gateway cannot be asked."""
        try:
            self._client.app(name)
        except ApiStatusError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return False
            raise
        return True

    def delete(self, name: str) -> None:
        """Deletes an app if it exists."""
        with suppress(ClientError):
            self._client.delete(name)

    @contextmanager
    def removed_at_the_end(self) -> Iterator[None]:
        """Removes what an earlier profiler left, and all apps of this one at the end of the block.

        A second process removes them if this one is killed, unless a controller does.
        """
        if self._prefix is not None:
            remove_temporary_apps(self._client, self._prefix)
            yield
            return
        remove_temporary_apps(self._client)
        command = [sys.executable, "-m", "cornserve.profiler.cleanup", self._own_prefix, *self._gateway]
        cleanup = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
        try:
            yield
        finally:
            cleanup.communicate(b"end")


def remove_temporary_apps(client: Client, prefix: str = PREFIX) -> None:
    """Deletes all apps whose names begin with `prefix`, also those of other profilers and those that users deployed."""
    for app in client.apps():
        if app.name.startswith(prefix):
            with suppress(ClientError):  # Another process has deleted it.
                client.delete(app.name)


def lasting_apps(client: Client, prefix: str = PREFIX) -> list[AppView]:
    """Returns the apps that `remove_temporary_apps` does not delete."""
    return [app for app in client.apps() if not app.name.startswith(prefix)]


def _activity(view: AppView) -> str:
    """Returns what an app that starts waits for."""
    replicas = [replica for group in view.status.groups for replica in group.replicas]
    messages = [replica.message for replica in replicas if replica.state != ReplicaState.READY and replica.message]
    ready = sum(group.ready for group in view.status.groups)
    return view.status.message or "; ".join(messages) or f"{ready} of {len(replicas)} replicas are ready"
