"""Where one local instance of Cornserve keeps its things. Two homes never meet."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import platformdirs

ENVIRONMENT = "CORNSERVE_HOME"


@dataclass(frozen=True, slots=True)
class Home:
    path: Path

    @classmethod
    def default(cls) -> Home:
        """`CORNSERVE_HOME`, or else the user's data directory."""
        chosen = os.environ.get(ENVIRONMENT)
        return cls(Path(chosen).expanduser().absolute() if chosen else platformdirs.user_data_path("cornserve"))

    @property
    def store(self) -> Path:
        return self.path / "state.db"

    @property
    def replicas(self) -> Path:
        """One folder for each replica: its process, endpoint and log."""
        return self.path / "replicas"

    @property
    def logs(self) -> Path:
        """Of the gateway and the controller."""
        return self.path / "logs"

    @property
    def models(self) -> Path:
        return self.path / "models"

    @property
    def instance(self) -> Path:
        """What runs for this home: the supervisor's process and the gateway's address."""
        return self.path / "instance.json"
