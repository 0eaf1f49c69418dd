"""Apps for the echo executors."""

from __future__ import annotations

_PARROT = """\
from cornserve import App, Task
from cornserve_echo import EchoRequest, EchoTask
from cornserve_tasklib import ChatChunk, ChatRequest, ChatResponse


class Parrot(Task[ChatRequest, ChatResponse]):
    def post_init(self) -> None:
        self.echo = EchoTask({settings})

    def invoke(self, request: ChatRequest) -> ChatResponse:
        words = request.messages[-1].content.split(" ")[: request.max_tokens]
        output = self.echo.invoke(EchoRequest(text=" ".join(words), seconds={seconds}))
        return ChatResponse(chunks=output.words.map(lambda word: ChatChunk(text=word + " ")))


app = App(name="{name}", paths=[Parrot()])
"""

_NOTES = """\
from cornserve import App, Task
from cornserve_echo import EchoResponse
from cornserve_echo.notes import NoteRequest, NoteTask, ReadRequest, ReadTask


class Copy(Task[NoteRequest, EchoResponse]):
    def post_init(self) -> None:
        self.writer = NoteTask()
        self.reader = ReadTask()

    def invoke(self, request: NoteRequest) -> EchoResponse:
        return self.reader.invoke(ReadRequest(notes=[self.writer.invoke(request).note]))


app = App(name="{name}", paths=[Copy()])
"""


def parrot(name: str, *, seconds: float = 0, **settings: object) -> str:
    """Returns the source of an app that repeats chat messages, with settings of its `EchoTask`.

    An app with a prefix shares no executor with apps that have another.

    Args:
        seconds: the duration of a response.
    """
    text = ", ".join(f"{field}={value!r}" for field, value in settings.items())
    return _PARROT.format(name=name, seconds=seconds, settings=text)


def notes(name: str) -> str:
    """Returns the source of an app that passes a text as a tensor from one executor to another."""
    return _NOTES.format(name=name)
