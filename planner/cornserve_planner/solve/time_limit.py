"""The default time limit of a solver run. The command line imports it, but no solver."""

from __future__ import annotations

from typing import Final

DEFAULT_TIME_LIMIT: Final = 60.0
"""Seconds until the best solution so far is used."""
