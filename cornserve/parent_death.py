"""Lets the system signal a process when its parent ends."""

from __future__ import annotations

import signal
from typing import Final

from cornserve.libc import LIBC

_PR_SET_PDEATHSIG: Final = 1


def signal_on_parent_death(number: signal.Signals) -> None:
    """Lets the system send this process a signal when the thread that started it ends.

    A stopped process gets the signal as well. A process that this process forks does not inherit the setting.
    """
    LIBC.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
