"""Apps of the console's tests. All use one executor, which starts once."""

from __future__ import annotations

from tests.unit.gateway.sources import SPEAKING_PARROT

HOSTILE = "<img src=x onerror=window.attacked=1>"
"""A text that runs code if the page inserts it as HTML."""

CHATTER = f"""
from cornserve import App, Task
from cornserve_echo import EchoRequest, EchoTask
from cornserve_tasklib import ChatChunk, ChatRequest, ChatResponse

class Chatter(Task[ChatRequest, ChatResponse]):
    '''Repeats the last message, a word every half second if there is a system message. "fail" fails.'''

    def post_init(self) -> None:
        self.echo = EchoTask()

    def invoke(self, request: ChatRequest) -> ChatResponse:
        content = request.messages[-1].content
        text = content if isinstance(content, str) else " ".join(getattr(part, "text", part.type) for part in content)
        slow = request.messages[0].role == "system"
        print("log line {HOSTILE}")
        output = self.echo.invoke(EchoRequest(
            text=text, seconds=len(text.split()) / 2 if slow else 0, fail="{HOSTILE}" if text == "fail" else None
        ))
        return ChatResponse(chunks=output.words.map(lambda word: ChatChunk(text=word + " ")))

app = App(name="chatter", paths=[Chatter()])
"""

SKETCHER = """
from base64 import b64encode
from struct import pack
from zlib import compress, crc32

from cornserve import App, Task
from cornserve_echo import EchoRequest, EchoTask
from cornserve_tasklib import GeneratedImage, ImageGenerationRequest, ImageGenerationResponse, ImageProgress, Usage

def png(gray: int) -> str:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return pack(">I", len(data)) + kind + data + pack(">I", crc32(kind + data))

    header, rows = pack(">IIBBBBB", 8, 8, 8, 0, 0, 0, 0), (b"\\0" + bytes([gray] * 8)) * 8
    parts = chunk(b"IHDR", header), chunk(b"IDAT", compress(rows)), chunk(b"IEND", b"")
    return b64encode(b"\\x89PNG\\r\\n\\x1a\\n" + b"".join(parts)).decode()

class Sketcher(Task[ImageGenerationRequest, ImageGenerationResponse]):
    '''Draws gray squares in three steps, a preview every half second. Ignores the number of previews.'''

    def post_init(self) -> None:
        self.echo = EchoTask()

    def invoke(self, request: ImageGenerationRequest) -> ImageGenerationResponse:
        steps = self.echo.invoke(EchoRequest(text="1 2 3", seconds=1.5))
        progress = steps.words.map(
            lambda step: ImageProgress(image=0, step=int(step), steps=3, b64_json=png(80 * int(step) - 80))
        )
        images = [GeneratedImage(b64_json=png(240), seed=request.seed or 0)]
        usage = Usage(prompt_tokens=1, completion_tokens=3)
        return ImageGenerationResponse(progress=progress, images=images, usage=usage)

app = App(name="sketcher", paths=[Sketcher()])
"""

HUMMER = """
from base64 import b64encode

from cornserve import App, Task
from cornserve_echo import EchoRequest, EchoTask
from cornserve_tasklib import SpeechChunk, SpeechRequest, SpeechResponse, Usage

def hum(word: str) -> SpeechChunk:
    return SpeechChunk(audio=b64encode(bytes(16_000)).decode(), seconds=0.5, sample_rate=16_000)

class Hummer(Task[SpeechRequest, SpeechResponse]):
    '''Sends half a second of silence as samples for each word, a word every half second.'''

    def post_init(self) -> None:
        self.echo = EchoTask()

    def invoke(self, request: SpeechRequest) -> SpeechResponse:
        if request.response_format != "pcm":
            raise ValueError("only samples")
        words = request.input.split()
        output = self.echo.invoke(EchoRequest(text=request.input, seconds=len(words) / 2))
        usage = Usage(prompt_tokens=1, completion_tokens=1)
        return SpeechResponse(audio=output.words.map(hum), seconds=len(words) / 2, usage=usage)

app = App(name="hummer", paths=[Hummer()])
"""

TAPE = """
from base64 import b64encode
from io import BytesIO
from wave import open as open_wave

from cornserve import App, Task
from cornserve_echo import EchoRequest, EchoTask
from cornserve_tasklib import SpeechChunk, SpeechRequest, SpeechResponse, Usage

def record(word: str) -> SpeechChunk:
    with BytesIO() as file:
        with open_wave(file, "wb") as wave:
            wave.setparams((1, 2, 16_000, 0, "NONE", ""))
            wave.writeframes(bytes(32_000))
        return SpeechChunk(audio=b64encode(file.getvalue()).decode(), seconds=1, sample_rate=16_000)

class Tape(Task[SpeechRequest, SpeechResponse]):
    '''Sends a WAV file with a second of silence, whatever format was asked for.'''

    def post_init(self) -> None:
        self.echo = EchoTask()

    def invoke(self, request: SpeechRequest) -> SpeechResponse:
        output = self.echo.invoke(EchoRequest(text=request.input))
        return SpeechResponse(audio=output.words.map(record), seconds=1, usage=Usage())

app = App(name="tape", paths=[Tape()])
"""

PLANNED = """
from cornserve_echo.stages import caption_app

app = caption_app("planned", encoder=0.1, llm=0.1)
"""
"""An app of `tests.unit.app.plans`."""

STAGED = """
from cornserve_echo.stages import caption_app

app = caption_app("staged", encoder=0, llm=0, shares=[0, 1, 0])
"""
"""An app whose language model reads the outputs of an encoder."""

DEMO = """
from base64 import b64encode
from struct import pack
from zlib import compress, crc32

from pydantic import BaseModel

from cornserve import App, Task
from cornserve_echo import EchoRequest, EchoTask

def chunk(kind: bytes, data: bytes) -> bytes:
    return pack(">I", len(data)) + kind + data + pack(">I", crc32(kind + data))

HEADER, ROWS = pack(">IIBBBBB", 8, 8, 8, 0, 0, 0, 0), (b"\\0" + bytes([99] * 8)) * 8
PNG = b"\\x89PNG\\r\\n\\x1a\\n" + chunk(b"IHDR", HEADER) + chunk(b"IDAT", compress(ROWS)) + chunk(b"IEND", b"")

class Text(BaseModel):
    prompt: str
    seed: int = 0

class NamedImage(BaseModel):
    b64_json: str
    answer: str

class Namer(Task[Text, NamedImage]):
    '''Returns a gray square, and the prompt as its name.'''

    def post_init(self) -> None:
        self.echo = EchoTask()

    def invoke(self, request: Text) -> NamedImage:
        answer = self.echo.invoke(EchoRequest(text=request.prompt, seconds=0.5)).text
        return NamedImage(b64_json=b64encode(PNG).decode(), answer=answer)

app = App(name="demo", paths=[Namer()])
"""

DEMO_SPELLER = SPEAKING_PARROT.replace("speaking-parrot", "demo-speller")

DEMO_DRAWER = SKETCHER.replace("sketcher", "demo-drawer")
