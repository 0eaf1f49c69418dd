"""Keeps the content of requests and responses out of logs: error messages may quote it."""

from __future__ import annotations

import logging
import traceback
from itertools import repeat

from cornserve.exception_text import exception_message

_REDACTED_LOGGERS = ("asyncio", "grpc", "uvicorn", "vllm.renderers")
"""Loggers of libraries that log errors of requests with their messages."""


MAX_CAUSES = 20
"""The number of errors of a chain that a traceback shows, the last ones."""

MAX_MESSAGE_CHARACTERS = 500
"""Longer messages of errors are cut in logs."""

TRACEBACK = "redacted_traceback"
"""The attribute of a log record with the traceback that formatters write."""


def redacted_traceback(error: BaseException, source: str = "", *, shows_messages: bool = False) -> str:
    """Returns the traceback with the type of the error, without its message.

    Args:
        shows_messages: whether to add the message, in one line of at most `MAX_MESSAGE_CHARACTERS`.
        source: the directory of an app's source. The frames before its first one are left out, and its files are
            named without it.
    """
    chain: dict[int, BaseException] = {}  # Code can make an error its own cause.
    cause: BaseException | None = error
    while cause is not None and id(cause) not in chain and len(chain) < MAX_CAUSES:
        chain[id(cause)] = cause
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    links = [*reversed(chain.values())]
    messages = map(_message, links) if shows_messages else repeat("")
    parts = (f"{_frames_and_type(link, source)}{message}" for link, message in zip(links, messages, strict=False))
    # The name of an error's class may have lone surrogates.
    return "\nled to\n".join(parts).encode(errors="replace").decode()


def _frames_and_type(error: BaseException, source: str) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    first = next((index for index, frame in enumerate(frames) if frame.filename.startswith(source)), 0)
    shown = "".join(traceback.format_list(frames[first:]))
    shown = shown.replace(f'File "{source}', 'File "') if source else shown
    return f"{shown}{type(error).__module__}.{type(error).__qualname__}"


def _message(error: BaseException) -> str:
    message = " ".join(exception_message(error, MAX_MESSAGE_CHARACTERS).split())
    return message and f": {message}"


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
