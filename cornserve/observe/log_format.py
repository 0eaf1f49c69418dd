"""How logs are written."""

from __future__ import annotations

import os
from enum import StrEnum

VARIABLE = "CORNSERVE_LOG_FORMAT"
"""Inherited by the processes that a process starts, so that all of an instance write alike."""


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"

    @classmethod
    def chosen(cls) -> LogFormat:
        """Ends the process if the environment says something else."""
        name = os.environ.get(VARIABLE) or cls.TEXT
        try:
            return cls(name)
        except ValueError:
            raise SystemExit(f"{VARIABLE} is {name!r}: it can be 'text' or 'json'") from None
