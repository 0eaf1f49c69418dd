"""The apps whose chats load generators send."""

from __future__ import annotations

from benchmarks.harness.load.job import MODELS, PACE_SECONDS, WORDS, Mode

_APP = f"""
from cornserve import App, Task
from cornserve_echo import EchoRequest, EchoTask
from cornserve_tasklib import ChatChunk, ChatRequest, ChatResponse

class Count(Task[ChatRequest, ChatResponse]):
    def post_init(self) -> None:
        self.echo = EchoTask()

    def invoke(self, request: ChatRequest) -> ChatResponse:
        words = {WORDS!r}[: request.max_tokens]
        answer = self.echo.invoke(EchoRequest(text=" ".join(words), seconds=SECONDS))
        return ChatResponse(RESPONSE)

app = App(name="NAME", paths=[Count()])
"""


def app_source(mode: Mode) -> str:
    """Returns the source of an app. All apps share the executor. Like a task of a language model, each app reads one
    output: the final value, or the stream of words.
    """
    response = (
        "text=answer.text" if mode == "whole" else 'chunks=answer.words.map(lambda word: ChatChunk(text=word + " "))'
    )
    seconds = PACE_SECONDS * len(WORDS) if mode == "paced" else 0
    return _APP.replace("NAME", MODELS[mode]).replace("SECONDS", str(seconds)).replace("RESPONSE", response)
