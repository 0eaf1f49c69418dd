"""The unit task, its input and its output, for use in model code."""

from __future__ import annotations

from pydantic import BaseModel, Field

from cornserve import Output, Stream, UnitTask


class EchoRequest(BaseModel):
    text: str
    seconds: float = Field(default=0, ge=0)
    """The duration of the invocation. The words are spread over it evenly."""
    fail: str | None = None
    """If set, the invocation fails with this message after its last word."""
    continues: bool = True
    """Whether another executor sends the remaining words when one dies; otherwise the stream ends with an error."""


class EchoResponse(Output):
    words: Stream[str] = Stream()
    text: str
    words_sent: int


class EchoTask(UnitTask[EchoRequest, EchoResponse]):
    executor = "echo"

    prefix: str = ""
    start_seconds: float = 0
    """The duration of the executor's start."""
    fail_start: str | None = None
    """If set, the executor fails to start with this message."""
    engine: bool = False
    """Whether the executor runs an engine process, as executors of language models do."""

    def continues(self, request: EchoRequest) -> bool:
        return request.continues
