"""Keeps the content of requests and responses out of logs: error messages may quote it."""

from __future__ import annotations

import logging
import traceback
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import dropwhile, islice
from pathlib import Path
from typing import Final

from cornserve.exception_text import exception_message

_REDACTED_LOGGERS = ("asyncio", "grpc", "uvicorn", "vllm.renderers")
"""Loggers of libraries that log errors of requests with their messages."""


MAX_CAUSES = 20
"""The number of errors of a chain that a traceback shows, the last ones."""

MAX_MEMBERS = 10
"""The number of members of exception groups that a traceback shows, the first ones."""

MAX_MESSAGE_CHARACTERS = 500
"""Longer messages of errors are cut in logs."""

_PACKAGE: Final = f"{Path(__file__).parents[1]}/"
"""The directory of Cornserve's files."""

TRACEBACK = "redacted_traceback"
"""The attribute of a log record with the traceback that formatters write."""


def redacted_traceback(error: BaseException, source: str = "", *, shows_messages: bool = False) -> str:
    """Returns the traceback with the type of the error, without its message, and those of members of exception groups.

    Args:
        shows_messages: whether to add the message, in one line of at most `MAX_MESSAGE_CHARACTERS`.
        source: the directory of an app's source, without which its files are named. Left out are the frames before its
            first one, Cornserve's frames of Cornserve's errors, and errors of the chain that have not passed the app.
    """
    chain = _chain(error)
    described = [_chain_text(chain, source, shows_messages)]
    described += [_chain_text(_chain(each), source, shows_messages) for each in islice(_members(chain), MAX_MEMBERS)]
    # The name of an error's class may have lone surrogates.
    return "\nwith the member\n".join(described).encode(errors="replace").decode()


def _chain(error: BaseException) -> list[BaseException]:
    """Returns an error, its cause, the cause of that, and so on: the first `MAX_CAUSES`."""
    chain: dict[int, BaseException] = {}  # Code can make an error its own cause.
    cause: BaseException | None = error
    while cause is not None and id(cause) not in chain and len(chain) < MAX_CAUSES:
        chain[id(cause)] = cause
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return [*chain.values()]


def _members(errors: Iterable[BaseException]) -> Iterator[BaseException]:
    """Yields the members of exception groups, and then the members of these."""
    groups = deque(each for each in errors if isinstance(each, BaseExceptionGroup))
    while groups:
        for member in groups.popleft().exceptions:
            yield member
            groups += [each for each in _chain(member) if isinstance(each, BaseExceptionGroup)]


def _chain_text(chain: Sequence[BaseException], source: str, shows_messages: bool) -> str:
    links = [(link, list(traceback.extract_tb(link.__traceback__))) for link in reversed(chain)]
    if source:
        links = [(link, found) for link, frames in links if (found := _frames_of_app(link, frames, source))] or links
    parts = (
        f"{_frames_and_type(link, frames, source)}{_message(link) if shows_messages else ''}" for link, frames in links
    )
    return "\nled to\n".join(parts)


def _frames_of_app(
    error: BaseException, frames: Sequence[traceback.FrameSummary], source: str
) -> list[traceback.FrameSummary]:
    """Returns the frames from the first one of the source, those of Cornserve only if the error is not Cornserve's."""
    shown = [*dropwhile(lambda frame: not frame.filename.startswith(source), frames)]
    if str(type(error).__module__).startswith("cornserve."):
        shown = [frame for frame in shown if not frame.filename.startswith(_PACKAGE)]
    return shown


def _frames_and_type(error: BaseException, frames: list[traceback.FrameSummary], source: str) -> str:
    shown = "".join(traceback.format_list(frames))
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
