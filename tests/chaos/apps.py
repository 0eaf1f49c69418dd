"""Apps under load, and the requests that go to them."""

from __future__ import annotations

from collections.abc import Callable

from tests.chaos.load import Request

ECHO = """
from cornserve import App
from cornserve_echo import EchoTask

app = App(name="echo", paths=[EchoTask(prefix={prefix!r}, engine={engine})])
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


def echo(prefix: str = "", *, engine: bool = False, comment: str = "") -> str:
    return ECHO.format(prefix=prefix, engine=engine, comment=comment)


def twice(prefix: str = "", *, engine: bool = False, comment: str = "") -> str:
    """Records in two rounds. Shares its executors with the other."""
    return TWICE.format(prefix=prefix, engine=engine, comment=comment)


def requests(*prefixes: str, seconds: float) -> Callable[[int], Request]:
    """All kinds, one after the other. `prefixes`: of the versions that may answer."""

    def request(number: int) -> Request:
        text = " ".join(f"word{number}-{index}" for index in range(20))
        once = tuple(f"{prefix}{text}" for prefix in prefixes)
        kind = number % 4
        if kind == 0:
            again = tuple(f"{prefix}{prefix}{text} again" for prefix in prefixes)
            return Request("twice", {"text": text, "seconds": seconds / 2}, stream=False, answers=again)
        continues = kind == 2
        body = {"text": text, "seconds": seconds, "continues": continues}
        return Request("echo", body, stream=kind > 1, answers=once, continues=continues)

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
    one_by_one: bool


class Post(Task[Letter, EchoResponse]):
    def post_init(self) -> None:
        self.write = NoteTask()
        self.read = ReadTask()

    def invoke(self, letter: Letter) -> EchoResponse:
        notes = []
        for text in letter.texts:
            notes.append(self.write.invoke(NoteRequest(text=text, seconds=letter.seconds, nbytes=letter.nbytes)))
            if letter.one_by_one:
                assert notes[-1].words
        return self.read.invoke(ReadRequest(notes=[note.note for note in notes], seconds=letter.seconds))


app = App(name="post", paths=[Post()])
"""


def letters(*, seconds: float, nbytes: int) -> Callable[[int], Request]:
    """Each of several notes: sent off together, or one when the last one is there."""

    def request(number: int) -> Request:
        texts = [f"note{number}-{index}" for index in range(3)]
        body = {"texts": texts, "seconds": seconds, "nbytes": nbytes, "one_by_one": number % 3 == 0}
        return Request("post", body, stream=False, answers=(" ".join(texts),))

    return request
