"""An option that runs in temporary apps, on one path of the measured app after the other."""

from __future__ import annotations

import time
from dataclasses import dataclass

from cornserve.app.isolation import isolated_source
from cornserve.app.settings import ExecutorOverride
from cornserve.app.spec import AppSource, AppSpec, Restart
from cornserve.home import Home
from cornserve.profiler.device import Device
from cornserve.profiler.temporary_apps import TemporaryApp, TemporaryApps
from cornserve.task.spec import ExecutorSpec

STOP_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class ProfiledApp:
    """The app whose options are measured."""

    name: str
    spec: AppSpec


class RunningOption:
    """A temporary app for each path. They share the replicas of the option, which are started once.

    Args:
        replicas: the number of replicas.
    """

    def __init__(
        self, profiled: ProfiledApp, device: Device, apps: TemporaryApps, executor: ExecutorSpec, replicas: int
    ) -> None:
        self._profiled = profiled
        self._device = device
        self._apps = apps
        self._executor = executor
        self._replicas = replicas
        self._path: int | None = None
        self._name = ""
        self._app: TemporaryApp | None = None

    def serve(self, path: int, seconds: float) -> TemporaryApp:
        """Returns the app that runs the option on a path. Raises `TemporaryAppError`.

        Args:
            path: the index of the path.
            seconds: the time after which a start is given up.
        """
        if self._app is not None and self._path == path:
            return self._app
        earlier, self._name = self._name, self._apps.new_name()
        try:
            self._app = self._apps.start(self._name, self._spec(path), self._executor, seconds)
        finally:
            if earlier:
                self._apps.delete(earlier)
        self._path = path
        return self._app

    @property
    def deleted_app(self) -> str:
        """The name of the app if someone else has deleted it. Raises `ClientError` if the gateway cannot be asked."""
        return "" if self._apps.exists(self._name) else self._name

    def stop(self, home: Home) -> None:
        """Waits until the replicas have ended, so that the next option has the machine for itself."""
        if self._name:
            self._apps.delete(self._name)
        deadline = time.monotonic() + STOP_SECONDS
        while self._app is not None and home.replicas.is_dir() and time.monotonic() < deadline:
            if not any(path.name.startswith(f"{self._app.group.key}-") for path in home.replicas.iterdir()):
                return
            time.sleep(0.05)

    def _spec(self, path: int) -> AppSpec:
        executor = self._executor
        return AppSpec(
            source=AppSource(
                inline=isolated_source(self._name, self._profiled.name, self._profiled.spec, path, executor.key)
            ),
            restart=Restart(id=self._apps.restart_id),
            executor_replicas={executor.executor: self._replicas},
            executors=self._pod_settings(),
        )

    def _pod_settings(self) -> list[ExecutorOverride]:
        """Returns the app's settings of the pods of the executor, on the measured type of slots."""
        named = {each.name: each.pod_template for each in self._profiled.spec.executors}
        template = named.get(self._executor.executor) or named.get("*")
        settings = ExecutorOverride(name="*", gpu_type=self._device.slot_type, pod_template=template)
        return [] if settings == ExecutorOverride(name="*") else [settings]
