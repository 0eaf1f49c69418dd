"""Unit tasks whose executors exchange a tensor: `NoteTask` writes notes, `ReadTask` reads them.

A note is a tensor: it stays in the shared memory of the executor that wrote it until all its readers have finished, and
does not pass through the gateway.
"""

from __future__ import annotations

from pydantic import BaseModel, Field

from cornserve import Output, Tensor, UnitTask
from cornserve_echo.task import EchoResponse


class NoteRequest(BaseModel):
    text: str
    seconds: float = Field(default=0, ge=0)
    """The duration of writing."""
    nbytes: int = Field(default=0, ge=0)
    """The minimum size of the note, which is padded with spaces."""
    fail: str | None = None
    """If set, the invocation fails with this message."""


class Note(Output):
    note: Tensor = Tensor()
    words: int


class NoteTask(UnitTask[NoteRequest, Note]):
    executor = "echo-writer"


class ReadRequest(BaseModel):
    notes: list[Tensor]
    seconds: float = Field(default=0, ge=0)
    """The duration of reading, after all notes have arrived."""


class ReadTask(UnitTask[ReadRequest, EchoResponse]):
    executor = "echo-reader"
