"""The calls of unit tasks that one request has made."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field


class CallRecord(BaseModel):
    """One call of a unit task."""

    task: str
    round: int
    """The number of the run that has made the call, from 1. A run ends with a value that is not available."""
    line: str
    """The line of the app that makes the call, such as "app.py:12"."""
    request: Any
    """The input as JSON, with texts in place of tensors, streams and media."""
    output: dict[str, Any] | None = None
    """The values of the output. None if the call has not ended."""
    error: str | None = None
    """The reason why the call has failed."""


class RunRecord(BaseModel):
    """A request that has ended."""

    calls: list[CallRecord]
    response: Any = None
    """The response, in which streams are null."""
    error: str | None = None
    """The error of the request, which then has no response."""
    log: list[str] = Field(default_factory=list)
    """The prints of the code, each line with its place, and the tracebacks of its errors."""
