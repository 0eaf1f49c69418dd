"""Keeps what clients send, and what they get, out of logs: messages of errors may quote it."""

from __future__ import annotations

import logging
import traceback

_LOUD = ("asyncio", "grpc", "uvicorn", "vllm.renderers")
"""What logs whatever error it meets."""


def redacted_traceback(error: BaseException) -> str:
    """What kind of error it is and where it comes from, without its message, which only the client is told."""
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    before = "" if cause is None else f"{redacted_traceback(cause)}\nled to\n"
    frames = "".join(traceback.format_tb(error.__traceback__))
    return f"{before}{frames}{type(error).__module__}.{type(error).__qualname__}"


class Discretion(logging.Filter):
    """Takes the messages of errors out of the records of libraries that know no better."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.startswith(_LOUD):
            # asyncio goes on with what a task or a handle looks like, results and arguments included.
            message = record.getMessage().strip().partition("\n")[0]
            error = record.exc_info[1] if record.exc_info else None
            record.msg = message if error is None else f"{message}\n{redacted_traceback(error)}"
            record.args = record.exc_info = record.exc_text = None
        return True
