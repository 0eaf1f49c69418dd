"""Keeps the content of requests and responses out of logs: error messages may quote it."""

from __future__ import annotations

import logging
import traceback

_REDACTED_LOGGERS = ("asyncio", "grpc", "uvicorn", "vllm.renderers")
"""Loggers of libraries that log errors of requests with their messages."""


TRACEBACK = "redacted_traceback"
"""The attribute of a log record with the traceback that formatters write."""


def redacted_traceback(error: BaseException) -> str:
    """Returns the traceback with the type of the error, without its message."""
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    before = "" if cause is None else f"{redacted_traceback(cause)}\nled to\n"
    frames = "".join(traceback.format_tb(error.__traceback__))
    return f"{before}{frames}{type(error).__module__}.{type(error).__qualname__}"


class RedactionFilter(logging.Filter):
    """Removes error messages from the records of other libraries."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.startswith(_REDACTED_LOGGERS):
            # asyncio's further lines contain the repr of a task or handle, with its results and arguments
            message = record.getMessage().strip().partition("\n")[0]
            error = record.exc_info[1] if record.exc_info else None
            record.msg = message
            if error is not None:
                record.__dict__[TRACEBACK] = redacted_traceback(error)
            record.args = record.exc_info = record.exc_text = None
        return True
