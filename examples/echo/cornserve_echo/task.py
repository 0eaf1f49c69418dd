"""What model code sees: the unit task, its input and its output."""

from __future__ import annotations

from pydantic import BaseModel, Field

from cornserve import Output, Stream, UnitTask


class EchoRequest(BaseModel):
    text: str
    seconds: float = Field(default=0, ge=0)
    """How long the answer takes; words are spread over it evenly."""
    fail: str | None = None
    """If set, the invocation fails with this message after its words."""
    continues: bool = True
    """Whether, when an executor dies, another says the rest of the words; else their stream ends with an error."""


class EchoResponse(Output):
    words: Stream[str] = Stream()
    text: str
    words_sent: int


class EchoTask(UnitTask[EchoRequest, EchoResponse]):
    executor = "echo"

    prefix: str = ""
    start_seconds: float = 0
    """How long the executor takes to start."""
    fail_start: str | None = None
    """If set, the executor fails to start with this message."""
    engine: bool = False
    """Whether the executor has an engine: a process beside it, without which it ends, as language models have."""

    def continues(self, request: EchoRequest) -> bool:
        return request.continues
