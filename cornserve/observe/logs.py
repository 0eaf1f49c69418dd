"""Logs of Cornserve's processes: text or JSON lines that name the request they are about and quote nothing of it."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, TextIO

from pydantic_core import from_json
from pythonjsonlogger.json import JsonFormatter

from cornserve.observe.log_format import LogFormat
from cornserve.observe.redaction import Discretion

REPLICA_VARIABLE = "CORNSERVE_REPLICA"
"""Tells an executor, and the processes of its engine, who they are."""

_of_process = {"replica": os.environ[REPLICA_VARIABLE]} if REPLICA_VARIABLE in os.environ else {}
_of_request: ContextVar[Mapping[str, object]] = ContextVar("log fields", default=MappingProxyType({}))


def configure(format: LogFormat | None = None) -> None:
    """Sets up the logs of this process, by default as the environment says."""
    root = logging.getLogger()
    root.setLevel(logging.INFO)
    root.handlers = [handler(format)]
    warnings.showwarning = _log_warning


def _log_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Without the message, which may quote a value: pydantic's do."""
    logging.getLogger("py.warnings").warning("%s:%d: %s", filename, lineno, category.__name__)


def handler(format: LogFormat | None = None) -> logging.Handler:
    """Writes to standard error; also named in the configuration of libraries that have handlers of their own."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Json() if (format or LogFormat.chosen()) is LogFormat.JSON else _Text())
    handler.addFilter(Discretion())
    return handler


def bind(**fields: object) -> None:
    """Adds fields to all further lines of this asyncio task, and of the tasks that it starts."""
    _of_request.set({**_of_request.get(), **fields})


def said(line: str) -> list[str]:
    """What a line of a log says: of JSON, also if its end is missing, the message and the error."""
    if not line.startswith("{"):
        return [line]
    try:
        record = from_json(line, allow_partial=True)
    except ValueError:
        return [line]
    return [str(record[name]) for name in ("message", "error") if name in record] or [line]


def _fields(record: logging.LogRecord) -> dict[str, object]:
    own: Mapping[str, object] = getattr(record, "fields", {})
    return {**_of_request.get(), **own}


class _Text(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's spelling
        return " ".join([super().formatMessage(record), *(f"{key}={value}" for key, value in _fields(record).items())])


class _Json(JsonFormatter):
    def add_fields(self, log_data: dict[str, Any], record: logging.LogRecord, message_dict: dict[str, Any]) -> None:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        log_data |= {"time": time, "level": record.levelname, "logger": record.name, "message": record.getMessage()}
        log_data |= {**_of_process, **_fields(record)}
        if record.exc_info and record.exc_info[1] is not None:
            # Before the traceback, which may be cut off.
            log_data["error"] = f"{type(record.exc_info[1]).__name__}: {record.exc_info[1]}"
            log_data["traceback"] = self.formatException(record.exc_info)
