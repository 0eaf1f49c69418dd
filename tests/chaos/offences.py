"""Apps whose code misbehaves, each in one way."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from enum import StrEnum

APP = "offender"

TASK = "Offender"

TRIGGER = "offend"
"""The text of a request that makes the app misbehave. Other requests are echoed."""

SOURCE = """\
import ctypes
import itertools
import os
import re
import socket
import sys
import threading
import time

from cornserve import App, Task
from cornserve_echo import EchoRequest, EchoResponse, EchoTask

{definition}

class {task}(Task[EchoRequest, EchoResponse]):
    def post_init(self) -> None:
        self.echo = EchoTask()
{post_init}

    def invoke(self, request: EchoRequest) -> EchoResponse:
        if request.text == {trigger!r}:
{invoke}
        return self.echo.invoke(request)


{top_level}
app = App(name={app!r}, paths=[{task}()])
"""


MAPPED = """\
output = self.echo.invoke(request)
return EchoResponse(words=output.words.map(offend), text=output.text, words_sent=1)"""


class Place(StrEnum):
    """The place in an app from which the offending code is called."""

    INVOKE = "invoke"
    MAP = "map"
    POST_INIT = "post_init"
    TOP_LEVEL = "top_level"


@dataclass(frozen=True, slots=True)
class Offence:
    name: str
    body: str
    """The body of the offending function."""
    place: Place = Place.INVOKE

    @property
    def at_import(self) -> bool:
        """Whether the deployment of the app misbehaves, instead of a request to it."""
        return self.place in (Place.POST_INIT, Place.TOP_LEVEL)

    @property
    def lines(self) -> range:
        """The lines of the body in the source."""
        lines = self.source.splitlines()
        first = next(number for number, line in enumerate(lines, 1) if line.startswith("def offend(")) + 1
        return range(first, first + self.body.count("\n") + 1)

    @property
    def source(self) -> str:
        parameters = "word: str" if self.place is Place.MAP else ""
        definition = f"\ndef offend({parameters}) -> None:\n{textwrap.indent(self.body, ' ' * 4)}\n"
        calls = dict.fromkeys(Place, "")
        calls[self.place] = "offend()"
        invoke = MAPPED if self.place is Place.MAP else calls[Place.INVOKE] or "pass"
        return SOURCE.format(
            app=APP,
            task=TASK,
            trigger=TRIGGER,
            definition=definition,
            post_init=textwrap.indent(calls[Place.POST_INIT], " " * 8),
            invoke=textwrap.indent(invoke, " " * 12),
            top_level=calls[Place.TOP_LEVEL],
        )


BASELINE = Offence("none", "pass")
"""An app that does not misbehave."""

LOOP = "while True: pass"
"""A loop on one line, because errors name the line."""

OFFENCES = [
    Offence("endless loop", LOOP),
    Offence(
        "endless loop that catches `BaseException`",
        f"while True:\n    try:\n        {LOOP}\n    except BaseException:\n        pass",
    ),
    Offence("endless loop in a mapped function", LOOP, Place.MAP),
    Offence("endless recursion", "offend()"),
    Offence("`time.sleep(60)`", "time.sleep(60)"),
    Offence("blocking socket", 'socket.create_server(("127.0.0.1", 0)).accept()'),
    Offence("1 GiB allocation", 'data = b"x" * (1 << 30)'),
    Offence("`os._exit(1)`", "os._exit(1)"),
    Offence("`sys.exit(1)`", "sys.exit(1)"),
    Offence(
        "10,000 threads",
        "for _ in range(10_000):\n    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
    ),
    Offence("catastrophic regex", 're.match(r"(a+)+$", "a" * 40 + "b")'),
    Offence("C call that holds the GIL", "sum(itertools.repeat(1))"),
    Offence("segmentation fault", "ctypes.string_at(0)"),
    Offence("SIGKILL to the fork server", "os.kill(os.getppid(), 9)"),
    Offence("reading the secret of the instance", 'os.chdir(os.environ["CORNSERVE_HOME"])\nopen("secret").read()'),
    Offence("endless loop in `post_init`", LOOP, Place.POST_INIT),
    Offence("`time.sleep(600)` at import", "time.sleep(600)", Place.TOP_LEVEL),
]
