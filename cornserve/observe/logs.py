"""Configures logging: text or JSON lines with the request's id and without its content."""

from __future__ import annotations

import json
import logging
import os
import re
import warnings
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, TextIO

from pydantic_core import from_json
from pythonjsonlogger.json import JsonFormatter

from cornserve.observe.log_format import LogFormat
from cornserve.observe.redaction import TRACEBACK, RedactionFilter

REPLICA_VARIABLE = "CORNSERVE_REPLICA"
"""The replica's id, in the environment of an executor and of its engine processes."""

_PLAIN_VALUE = re.compile(r"[!#-<>-\[\]-~]+")
"""A text field that is written without quotes: ASCII without spaces, control characters, `"`, `=` and backslashes."""

_TEXT_PREFIX = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} [A-Z]+ [\w.]+ ")
"""The start of a line of a `_TextLogFormatter`."""

_task_fields: ContextVar[Mapping[str, object]] = ContextVar("log fields", default=MappingProxyType({}))


def configure(format: LogFormat | None = None) -> None:
    """Configures logging of this process. The default format is the environment's."""
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
    """Logs the warning without its message: pydantic's messages quote values."""
    logging.getLogger("py.warnings").warning("%s:%d: %s", filename, lineno, category.__name__)


def handler(format: LogFormat | None = None) -> logging.Handler:
    """Creates a handler that writes to standard error. Logging configurations of libraries also refer to it."""
    handler = logging.StreamHandler()
    handler.setFormatter(
        _JsonLogFormatter() if (format or LogFormat.from_environment()) is LogFormat.JSON else _TextLogFormatter()
    )
    handler.addFilter(RedactionFilter())
    return handler


def bind(**fields: object) -> None:
    """Adds fields to all further lines of this asyncio task and of the tasks that it creates."""
    _task_fields.set({**_task_fields.get(), **fields})


def bound_fields() -> Mapping[str, object]:
    """Returns the fields that `bind` has added to the lines of this asyncio task."""
    return _task_fields.get()


def traceback_field(traceback: str) -> dict[str, object]:
    """Returns the `extra` of a log call that adds a traceback: in JSON a field, in text further lines."""
    return {TRACEBACK: traceback}


def parse_messages(line: str) -> list[str]:
    """Returns the message and the error of a JSON line, which may be truncated, and the message of any other line."""
    if not line.startswith("{"):
        return [_TEXT_PREFIX.sub("", line)]
    try:
        record = from_json(line, allow_partial=True)
    except ValueError:
        return [line]
    return [str(record[name]) for name in ("message", "error") if name in record] or [line]


def _fields(record: logging.LogRecord) -> dict[str, object]:
    record_fields: Mapping[str, object] = getattr(record, "fields", {})
    return {**_task_fields.get(), **record_fields}


def _format_field(value: object) -> str:
    """Quotes a text that could be read as several fields or lines: clients choose some of them."""
    text = str(value)
    return text if _PLAIN_VALUE.fullmatch(text) else json.dumps(text)


class _TextLogFormatter(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's spelling
        fields = (f"{key}={_format_field(value)}" for key, value in _fields(record).items())
        return " ".join([super().formatMessage(record), *fields])

    def format(self, record: logging.LogRecord) -> str:
        return "\n".join([super().format(record), *getattr(record, TRACEBACK, "").splitlines()])


class _JsonLogFormatter(JsonFormatter):
    def add_fields(self, log_data: dict[str, Any], record: logging.LogRecord, message_dict: dict[str, Any]) -> None:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        log_data |= {"time": time, "level": record.levelname, "logger": record.name, "message": record.getMessage()}
        replica = os.environ.get(REPLICA_VARIABLE)
        log_data |= {**({"replica": replica} if replica else {}), **_fields(record)}
        if record.exc_info and record.exc_info[1] is not None:
            # before the traceback, because the line may be truncated
            log_data["error"] = f"{type(record.exc_info[1]).__name__}: {record.exc_info[1]}"
            log_data["traceback"] = self.formatException(record.exc_info)
        if traceback := getattr(record, TRACEBACK, ""):
            log_data["traceback"] = traceback
