"""Unit tasks whose executors exchange a stream of tensors: `SpeakTask` speaks words, `WriteTask` writes them.

Each word is a tensor. The writer reads it while the speaker speaks the next ones.
"""

from __future__ import annotations

from pydantic import BaseModel, Field

from cornserve import Output, Stream, Task, TensorStream, UnitTask


class SpeakRequest(BaseModel):
    text: str
    seconds: float = Field(default=0, ge=0)
    """The duration of each word."""
    repeatable: bool = True
    """Whether another executor can speak the same words again."""


class Speech(Output):
    words: TensorStream = TensorStream()
    spoken: Stream[str] = Stream()
    """The words that have been spoken."""
    count: int


class SpeakTask(UnitTask[SpeakRequest, Speech]):
    executor = "echo-speaker"

    def continues(self, request: SpeakRequest) -> bool:
        return request.repeatable


class WriteRequest(BaseModel):
    words: TensorStream
    seconds: float = Field(default=0, ge=0)
    """The duration of writing each word."""
    limit: int = Field(default=1_000_000, ge=0)
    """The number of words after which the writer stops."""


class Written(Output):
    written: Stream[str] = Stream()
    """The words, as they are written down."""
    again: TensorStream = TensorStream()
    """The words once more, for another writer."""
    text: str


class WriteTask(UnitTask[WriteRequest, Written]):
    executor = "echo-typist"


class Dictate(Task[SpeakRequest, Written]):
    """Writes a text down while it is spoken."""

    def post_init(self) -> None:
        self.speak = SpeakTask()
        self.write = WriteTask()

    def invoke(self, request: SpeakRequest) -> Written:
        return self.write.invoke(WriteRequest(words=self.speak.invoke(request).words))
