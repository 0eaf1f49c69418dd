"""The base class of the profiler's errors."""

from __future__ import annotations


class ProfilingError(Exception):
    """An option cannot be measured. The message is for users."""
