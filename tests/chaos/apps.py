"""The apps under load, and the requests to them."""

from __future__ import annotations

from collections.abc import Callable

from tests.chaos.load import ChaosRequest

ECHO = """
from cornserve import App
from cornserve_echo import EchoTask

app = App(name={name!r}, paths=[EchoTask(prefix={prefix!r}, engine={engine}, start_seconds={start_seconds})])
# {comment}
"""

TWICE = """
from cornserve import App, Task
from cornserve_echo import EchoRequest, EchoResponse, EchoTask


class Twice(Task[EchoRequest, EchoResponse]):
    def post_init(self) -> None:
        self.echo = EchoTask(prefix={prefix!r}, engine={engine})

    def invoke(self, request: EchoRequest) -> EchoResponse:
        first = self.echo.invoke(request)
        return self.echo.invoke(request.model_copy(update={{"text": f"{{first.text}} again"}}))


app = App(name="twice", paths=[Twice()])
# {comment}
"""


def echo(
    prefix: str = "", *, name: str = "echo", engine: bool = False, comment: str = "", start_seconds: float = 0
) -> str:
    return ECHO.format(prefix=prefix, name=name, engine=engine, comment=comment, start_seconds=start_seconds)


def twice(prefix: str = "", *, engine: bool = False, comment: str = "") -> str:
    """Returns an app that records in two rounds and shares its executors with `echo`."""
    return TWICE.format(prefix=prefix, engine=engine, comment=comment)


def requests(*prefixes: str, seconds: float) -> Callable[[int], ChaosRequest]:
    """Returns a function that makes the n-th request. The kinds of requests alternate.

    Args:
        prefixes: the prefixes of the app versions that may respond.
        seconds: how long a request takes.
    """

    def request(number: int) -> ChaosRequest:
        text = " ".join(f"word{number}-{index}" for index in range(20))
        once = tuple(f"{prefix}{text}" for prefix in prefixes)
        kind = number % 4
        if kind == 0:
            again = tuple(f"{prefix}{prefix}{text} again" for prefix in prefixes)
            return ChaosRequest("twice", {"text": text, "seconds": seconds / 2}, stream=False, expected=again)
        continues = kind == 2
        body = {"text": text, "seconds": seconds, "continues": continues}
        return ChaosRequest("echo", body, stream=kind > 1, expected=once, continues=continues)

    return request


POST = """
from pydantic import BaseModel

from cornserve import App, Task
from cornserve_echo import EchoResponse
from cornserve_echo.notes import NoteRequest, NoteTask, ReadRequest, ReadTask


class Letter(BaseModel):
    texts: list[str]
    seconds: float
    nbytes: int
    sequential: bool


class Post(Task[Letter, EchoResponse]):
    def post_init(self) -> None:
        self.write = NoteTask()
        self.read = ReadTask()

    def invoke(self, letter: Letter) -> EchoResponse:
        notes = []
        for text in letter.texts:
            notes.append(self.write.invoke(NoteRequest(text=text, seconds=letter.seconds, nbytes=letter.nbytes)))
            if letter.sequential:
                assert notes[-1].words
        return self.read.invoke(ReadRequest(notes=[note.note for note in notes], seconds=letter.seconds))


app = App(name="post", paths=[Post()])
"""


DICTATION = """
from cornserve import App
from cornserve_echo.dictation import Dictate

app = App(name="dictation", paths=[Dictate()])
"""


def dictations(*, seconds: float) -> Callable[[int], ChaosRequest]:
    """Returns a function that makes the n-th request. Every third response is streamed.

    Args:
        seconds: how long a word takes.
    """

    def request(number: int) -> ChaosRequest:
        text = " ".join(f"word{number}-{index}" for index in range(20))
        body = {"text": text, "seconds": seconds}
        return ChaosRequest("dictation", body, stream=number % 3 == 0, expected=(text,), continues=False)

    return request


def letters(*, seconds: float, nbytes: int) -> Callable[[int], ChaosRequest]:
    """Returns a function that makes the n-th request. Its notes are written in parallel or one after the other."""

    def request(number: int) -> ChaosRequest:
        texts = [f"note{number}-{index}" for index in range(3)]
        body = {"texts": texts, "seconds": seconds, "nbytes": nbytes, "sequential": number % 3 == 0}
        return ChaosRequest("post", body, stream=False, expected=(" ".join(texts),))

    return request
