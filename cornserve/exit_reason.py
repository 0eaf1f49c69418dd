"""Describes how processes end."""

from __future__ import annotations

import signal


def exit_reason(status: int) -> str:
    """Returns a phrase such as "was killed by SIGSEGV" for an exit status, or for the negative number of a signal."""
    if status >= 0:
        return f"exited with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"
