"""The directory of one local instance. Instances with different homes share no files."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import platformdirs

HOME_VARIABLE = "CORNSERVE_HOME"


@dataclass(frozen=True, slots=True)
class Home:
    path: Path

    @classmethod
    def default(cls) -> Home:
        """Returns the home that `CORNSERVE_HOME` names, by default the user's data directory."""
        chosen = os.environ.get(HOME_VARIABLE)
        return cls(Path(chosen).expanduser().absolute() if chosen else platformdirs.user_data_path("cornserve"))

    @property
    def store(self) -> Path:
        return self.path / "state.db"

    @property
    def replicas(self) -> Path:
        """One directory per replica, with its process record, its addresses and its log."""
        return self.path / "replicas"

    @property
    def logs(self) -> Path:
        """The logs of the gateway and the controller."""
        return self.path / "logs"

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
