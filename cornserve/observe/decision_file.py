"""The decision log of a process: a bounded file of JSON lines that `cornserve simulate --replay` repeats.

The first line is a header. A decision refers to snapshots, such as the table of an app's paths, which precede it in the
same file. When the file is full, it replaces the one before, and a new file begins with a header and snapshots. It
contains no content of requests: only ids, sizes and loads.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TextIO

from cornserve.observe import logs

log = logging.getLogger(__name__)

DECISIONS: Final = logging.getLogger("cornserve.decisions")

MAX_FILE_BYTES: Final = 32 << 20
"""The size at which a file is full. A process has at most two of them."""

MAX_FILES: Final = 16
"""The files that a directory keeps, of processes that have ended."""

Snapshot = tuple[object, Callable[[], Mapping[str, Any]]]
"""The object that a decision reads, and a function that returns its fields. An object is written once in a file."""


class DecisionFile(logging.Handler):
    """Writes the decisions of this process, from the first one on.

    Args:
        process: `gateway` or `controller`.
    """

    def __init__(self, directory: Path, process: str, *, max_bytes: int = MAX_FILE_BYTES) -> None:
        super().__init__()
        self.path = directory / f"{process}-{os.getpid()}.jsonl"
        self._process = process
        self._max_bytes = max_bytes
        self._file: TextIO | None = None
        self._size = 0
        self._snapshots: dict[int, tuple[object, int]] = {}
        """The objects in the current file with their numbers, by identity."""

    def emit(self, record: logging.LogRecord) -> None:
        """Writes the decision of a log record. Records without one have no effect."""
        decision: Mapping[str, Any] | None = getattr(record, "decision", None)
        if decision is not None:
            self.write(decision, getattr(record, "snapshot", None))

    def write(self, decision: Mapping[str, Any], snapshot: Snapshot | None) -> None:
        """Writes a decision, after what it refers to. Ends with a warning if the file cannot be written."""
        try:
            if self._file is None or self._size >= self._max_bytes:
                self._begin_file()
            self._write({**logs.bound_fields(), **decision, "snapshot": self._write_snapshot(snapshot)})
        except OSError as error:
            DECISIONS.removeHandler(self)
            log.warning("the decision log ends, because %s cannot be written: %s", self.path, error.strerror)

    def _write_snapshot(self, snapshot: Snapshot | None) -> int | None:
        """Writes an object that the file does not contain yet. Returns its number."""
        if snapshot is None:
            return None
        read, describe = snapshot
        if id(read) not in self._snapshots:
            self._snapshots[id(read)] = read, len(self._snapshots)
            self._write({"event": "snapshot", "number": len(self._snapshots) - 1, **describe()})
        return self._snapshots[id(read)][1]

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        super().close()

    def _begin_file(self) -> None:
        if self._file is not None:
            self._file.close()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            self.path.replace(self.path.with_suffix(".before.jsonl"))
        _remove_oldest(self.path.parent)
        self._file = self.path.open("w", encoding="utf-8")
        self._size = 0
        self._snapshots.clear()
        self._write({"format": "cornserve/decisions", "version": 1, "process": self._process, "time": time.time()})

    def _write(self, line: Mapping[str, Any]) -> None:
        assert self._file is not None
        text = json.dumps(line, separators=(",", ":")) + "\n"
        self._size += len(text)
        self._file.write(text)
        self._file.flush()


def write_decisions(directory: Path, process: str) -> None:
    """Writes the decisions of this process to a file. Without decisions, the file is not created."""
    DECISIONS.addHandler(DecisionFile(directory, process))


def log_decision(fields: Mapping[str, Any], seen: Mapping[str, Any], snapshot: Snapshot | None = None) -> None:
    """Logs a decision to the log of the process and to the file.

    Args:
        seen: the loads or arrivals that the policy read, for the file only.
    """
    DECISIONS.info("decision", extra={"fields": fields, "decision": {**fields, "seen": seen}, "snapshot": snapshot})


def record_decision(fields: Mapping[str, Any], seen: Mapping[str, Any]) -> None:
    """Logs a decision to the file only: controllers decide every few seconds, mostly to change nothing."""
    for handler in DECISIONS.handlers:
        if isinstance(handler, DecisionFile):
            handler.write({**fields, "seen": seen}, None)


def _remove_oldest(directory: Path) -> None:
    files = sorted(directory.glob("*.jsonl"), key=lambda path: path.stat().st_mtime)
    for path in files[: -MAX_FILES + 1]:
        path.unlink(missing_ok=True)
