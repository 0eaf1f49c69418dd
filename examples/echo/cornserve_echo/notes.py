"""Unit tasks whose executors hand data to each other: one writes notes, the other reads them.

A note is a tensor: it stays with the executor that has written it until everybody has read it, and does not pass
through the gateway.
"""

from __future__ import annotations

from pydantic import BaseModel, Field

from cornserve import Output, Tensor, UnitTask
from cornserve_echo.task import EchoResponse


class NoteRequest(BaseModel):
    text: str
    seconds: float = Field(default=0, ge=0)
    """How long it takes to write it."""
    nbytes: int = Field(default=0, ge=0)
    """How large the note is at least; it is filled up with spaces."""
    fail: str | None = None


class Note(Output):
    note: Tensor = Tensor()
    words: int


class NoteTask(UnitTask[NoteRequest, Note]):
    executor = "echo-writer"

    hand: str = ""
    """Notes by another hand are another executor's."""


class ReadRequest(BaseModel):
    notes: list[Tensor]
    seconds: float = Field(default=0, ge=0)
    """How long it takes to read them, once they are all there."""


class ReadTask(UnitTask[ReadRequest, EchoResponse]):
    executor = "echo-reader"
