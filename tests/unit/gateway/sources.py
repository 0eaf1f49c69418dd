"""Apps for the gateway's tests, as users would write them."""

ECHO = """
from cornserve import App, Task
from cornserve_echo import EchoRequest, EchoResponse, EchoTask

class Echo(Task[EchoRequest, EchoResponse]):
    def post_init(self) -> None:
        self.echo = EchoTask()

    def invoke(self, request: EchoRequest) -> EchoResponse:
        return self.echo.invoke(request)

app = App(name="echo", paths=[Echo()])
"""

CHAT = """
from cornserve import App, Task
from cornserve_echo import EchoRequest, EchoTask
from cornserve_tasklib import ChatChunk, ChatRequest, ChatResponse, Usage

class Parrot(Task[ChatRequest, ChatResponse]):
    '''Repeats the last message: a word every tenth of a second if there is a system message, else at once.'''

    def post_init(self) -> None:
        self.echo = EchoTask()

    def invoke(self, request: ChatRequest) -> ChatResponse:
        text = request.messages[-1].content
        slow = request.messages[0].role == "system"
        answer = self.echo.invoke(EchoRequest(text=text, seconds=len(text.split()) / 10 if slow else 0))
        return ChatResponse(chunks=answer.words.map(lambda word: ChatChunk(text=word + " ")))

app = App(name="parrot", paths=[Parrot()])
"""

READER = """
from cornserve import App, Task
from cornserve_echo import EchoRequest, EchoTask
from cornserve_tasklib import ChatChunk, ChatRequest, ChatResponse

class Reader(Task[ChatRequest, ChatResponse]):
    '''Looks at the text of an answer before it passes on its stream.'''

    def post_init(self) -> None:
        self.echo = EchoTask()

    def invoke(self, request: ChatRequest) -> ChatResponse:
        answer = self.echo.invoke(EchoRequest(text=request.messages[-1].content))
        if not answer.text:
            return ChatResponse(text="silence")
        return ChatResponse(chunks=answer.words.map(lambda word: ChatChunk(text=word + " ")))

app = App(name="reader", paths=[Reader()])
"""

STEPS = """
from pydantic import BaseModel
from cornserve import App, InvocationError, Task
from cornserve_echo import EchoRequest, EchoTask

class Order(BaseModel):
    words: list[str]
    seconds: float = 0
    mode: str = "together"

class Result(BaseModel):
    text: str

class Steps(Task[Order, Result]):
    def post_init(self) -> None:
        self.echo = EchoTask(prefix="* ")

    def invoke(self, order: Order) -> Result:
        if order.mode == "together":
            outputs = [self.echo.invoke(EchoRequest(text=word, seconds=order.seconds)) for word in order.words]
            return Result(text=" ".join(output.text for output in outputs))
        if order.mode == "one by one":
            text = ""
            for word in order.words:
                text = self.echo.invoke(EchoRequest(text=f"{text} {word}".strip())).text
            return Result(text=text)
        if order.mode == "fallback":
            try:
                return Result(text=self.echo.invoke(EchoRequest(text="x", fail="boom")).text)
            except InvocationError as error:
                return Result(text=f"fell back: {error.code}")
        if order.mode == "not deployed":
            return Result(text=EchoTask(prefix="unknown").invoke(EchoRequest(text="x")).text)
        raise KeyError(order.mode)

app = App(name="steps", paths=[Steps()])
"""
