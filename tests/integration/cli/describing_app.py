"""An app with two executors: `stage` runs for each image of a request, `echo` once."""

from __future__ import annotations

_TASK = """
from pydantic import BaseModel

from cornserve import App, Task
from cornserve_echo import EchoRequest, EchoResponse, EchoTask
from cornserve_echo.stages import StageRequest, StageTask


class Request(BaseModel):
    images: int = 0


class Describe(Task[Request, EchoResponse]):
    encoder: StageTask
    writer: EchoTask

    def invoke(self, request: Request) -> EchoResponse:
        seen = [self.encoder.invoke(StageRequest(items={"encoder": 1}, text="image")) for _ in range(request.images)]
        written = self.writer.invoke(EchoRequest(text="text"))
        return EchoResponse(text=" ".join([written.text, *(image.text for image in seen)]), words_sent=1)
"""


def describing_app(name: str = "describe", *, seconds: float = 0.001, gpus: int = 0) -> str:
    """Returns the source of the app.

    Args:
        seconds: the time that `stage` takes for an image.
        gpus: the slots of a replica of `stage`.
    """
    return f"""{_TASK}

path = Describe(encoder=StageTask(seconds=dict(encoder={seconds}), gpus={gpus}), writer=EchoTask())
app = App(name="{name}", paths=[path], probes=[Request(), Request(images=1)])
"""
