"""The format of logs."""

from __future__ import annotations

import os
from enum import StrEnum

LOG_FORMAT_VARIABLE = "CORNSERVE_LOG_FORMAT"
"""Child processes inherit it, so that all processes of an instance use one format."""


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"

    @classmethod
    def from_environment(cls) -> LogFormat:
        """Exits the process if the environment variable is invalid."""
        name = os.environ.get(LOG_FORMAT_VARIABLE) or cls.TEXT
        try:
            return cls(name)
        except ValueError:
            message = f"unknown log format {name!r}: set {LOG_FORMAT_VARIABLE} to 'text' or 'json'"
            raise SystemExit(message) from None
