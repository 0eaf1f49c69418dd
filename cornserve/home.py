"""The directory of one local instance. Instances with different homes share no files."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import platformdirs

HOME_VARIABLE = "CORNSERVE_HOME"

PRIVATE_UMASK = 0o077
"""Processes that write to the home set this mask first: files and directories are only for their owner."""


@dataclass(frozen=True, slots=True)
class Home:
    path: Path

    @classmethod
    def default(cls) -> Home:
        """Returns the home that `CORNSERVE_HOME` names, by default the user's data directory."""
        chosen = os.environ.get(HOME_VARIABLE)
        return cls(Path(chosen).expanduser().absolute() if chosen else platformdirs.user_data_path("cornserve"))

    @property
    def secret(self) -> Path:
        """The secret that the processes of the instance share."""
        return self.path / "secret"

    @property
    def store(self) -> Path:
        return self.path / "state.db"

    @property
    def apps_file(self) -> Path:
        """The specs of the deployed apps, from which a lost store can be deployed again."""
        return self.path / "apps.json"

    @property
    def replicas(self) -> Path:
        """One directory per replica, with its process record, its addresses and its log."""
        return self.path / "replicas"

    @property
    def logs(self) -> Path:
        """The logs of the gateway and the controller."""
        return self.path / "logs"

    @property
    def decisions(self) -> Path:
        """The decision logs of the gateways and the controller."""
        return self.path / "decisions"

    @property
    def blocking_apps(self) -> Path:
        """The names of apps that have blocked a gateway."""
        return self.path / "blocking-apps"

    @property
    def current_app(self) -> Path:
        """The app that runs in a gateway without a supervisor."""
        return self.path / "current-app"

    @property
    def models(self) -> Path:
        return self.path / "models"

    @property
    def instance(self) -> Path:
        """The process id of the running supervisor and the gateway's URL."""
        return self.path / "instance.json"

    @property
    def lock(self) -> Path:
        """The file that the processes of a running instance lock."""
        return self.path / "instance.lock"

    def create_private(self) -> None:
        """Creates the directory if it is missing, and takes all other users' access to its files.

        Raises `OSError` if the directory cannot be created or its mode cannot be changed.
        """
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in (self.path, *self._files()):
            mode = stat.S_IMODE(path.stat(follow_symlinks=False).st_mode)
            if mode & PRIVATE_UMASK and not path.is_symlink():
                path.chmod(mode & ~PRIVATE_UMASK)

    def _files(self) -> Iterator[Path]:
        """Yields all files and directories that Cornserve creates in the home. A user may keep others there."""
        yield from self.path.glob(f"{self.store.name}*")
        yield from self.path.glob(f"{self.instance.stem}.*")
        yield from self.path.glob(f"{self.apps_file.name}*")
        for directory in (self.models, self.logs, self.replicas):
            if directory.exists():
                yield directory
        for directory in (self.logs, self.replicas):
            yield from directory.rglob("*")
