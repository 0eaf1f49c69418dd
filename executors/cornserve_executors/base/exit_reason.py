"""Reports why an executor exits: in its log, and to Kubernetes, which shows the reason in the status of the pod."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from cornserve.exception_text import exception_text

MAX_BYTES: Final = 4096
"""Kubernetes ignores the rest."""

TERMINATION_LOG: Final = Path("/dev/termination-log")
"""The file that Kubernetes creates in each container."""

log = logging.getLogger("cornserve.executor")


def report(message: str, termination_log: Path, error: Exception | None = None) -> None:
    """Logs the message, and writes it to the termination log of the container if there is one.

    Args:
        error: is logged with its traceback, and its last line is added to the termination log.
    """
    log.error("%s", message, exc_info=error)
    reason = f"{message}: {exception_text(error)}" if error else message
    with suppress(OSError):
        descriptor = os.open(termination_log, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)  # does not create the file
        with os.fdopen(descriptor, "wb") as file:
            file.write(reason.encode()[:MAX_BYTES])
