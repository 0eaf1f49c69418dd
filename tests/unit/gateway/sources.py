"""Source code of the apps in the gateway's tests."""

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
    '''Repeats the last message: one word every tenth of a second if there is a system message, otherwise at once.'''

    def post_init(self) -> None:
        self.echo = EchoTask()

    def invoke(self, request: ChatRequest) -> ChatResponse:
        text = request.messages[-1].content
        slow = request.messages[0].role == "system"
        output = self.echo.invoke(EchoRequest(text=text, seconds=len(text.split()) / 10 if slow else 0))
        return ChatResponse(chunks=output.words.map(lambda word: ChatChunk(text=word + " ")))

app = App(name="parrot", paths=[Parrot()])
"""

READER = """
from cornserve import App, Task
from cornserve_echo import EchoRequest, EchoTask
from cornserve_tasklib import ChatChunk, ChatRequest, ChatResponse

class Reader(Task[ChatRequest, ChatResponse]):
    '''Reads the text of an output before it returns the stream.'''

    def post_init(self) -> None:
        self.echo = EchoTask()

    def invoke(self, request: ChatRequest) -> ChatResponse:
        output = self.echo.invoke(EchoRequest(text=request.messages[-1].content))
        if not output.text:
            return ChatResponse(text="silence")
        return ChatResponse(chunks=output.words.map(lambda word: ChatChunk(text=word + " ")))

app = App(name="reader", paths=[Reader()])
"""

KEEPER = """
from cornserve import App, Task
from cornserve_echo import EchoRequest, EchoResponse, EchoTask

kept = []

class Keeper(Task[EchoRequest, EchoResponse]):
    '''Returns the text of the first request to every request.'''

    def post_init(self) -> None:
        self.echo = EchoTask()

    def invoke(self, request: EchoRequest) -> EchoResponse:
        output = self.echo.invoke(request)
        output.text
        kept.append(output)
        return EchoResponse(text=kept[0].text, words_sent=0)

app = App(name="keeper", paths=[Keeper()])
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

MODEL = """
from cornserve import App, Task
from cornserve_echo import EchoRequest, EchoTask
from cornserve_tasklib import ChatChoice, ChatChunk, ChatResponse, LLMRequest, Usage
from cornserve_tasklib.chat_response import PromptLogprob, TokenLogprob, TokenLogprobs, ToolCallDelta
from cornserve_tasklib.messages import FunctionCall, ToolCall

CALL = ToolCall(id="call-1", type="function", function=FunctionCall(name="add", arguments='{"a": 1}'))
CALLS = {
    "begin": [ToolCallDelta(index=0, id="call-1", name="add", arguments="")],
    "go-on": [ToolCallDelta(index=0, arguments='{"a": ')],
    "end": [ToolCallDelta(index=0, arguments="1}")],
}

RANKED = PromptLogprob(logprob=-0.5, rank=1, decoded_token="y")

def logprobs(token):
    top = [TokenLogprob(token=token, logprob=-0.5), TokenLogprob(token="?", logprob=-1.5)]
    return [TokenLogprobs(token=token, logprob=-0.5, top_logprobs=top)]

def chunk(word):
    index, _, text = word.rpartition(":")
    index = int(index or 0)
    if text in CALLS:
        return ChatChunk(text="", tool_calls=CALLS[text])
    if text.startswith("think-"):
        return ChatChunk(text="", reasoning=text)
    return ChatChunk(text=text, index=index, token_ids=[len(text)], logprobs=logprobs(text))

class Model(Task[LLMRequest, ChatResponse]):
    '''Responds as the prompt specifies.'''

    def post_init(self) -> None:
        self.echo = EchoTask()

    def invoke(self, request: LLMRequest) -> ChatResponse:
        request = request.model_copy()  # uses all fields
        prompt = request.prompt if hasattr(request, "prompt") else request.messages[-1].content
        if isinstance(prompt, list):
            prompt = " ".join(map(str, prompt))
        output = self.echo.invoke(EchoRequest(text=prompt))
        if prompt == "call":
            return ChatResponse(tool_calls=[CALL], finish_reason="tool_calls", reasoning="think-1")
        if prompt.startswith("say "):
            text = prompt.removeprefix("say ")
            return ChatResponse(
                text=text,
                logprobs=logprobs(text),
                token_ids=[1],
                prompt_logprobs=None if request.prompt_logprobs is None else [None, {7: RANKED}],
                further=[ChatChoice(text=f"{text} {number}") for number in range(1, request.n)],
                usage=Usage(prompt_tokens=2, completion_tokens=request.n, cached_tokens=1),
            )
        return ChatResponse(chunks=output.words.map(chunk), further=[ChatChoice()] * (request.n - 1))

app = App(name="model", paths=[Model()])
"""

VECTORS = """
from array import array
from base64 import b64encode
from cornserve import App, Task
from cornserve_echo import EchoTask
from cornserve_tasklib import EmbeddingRequest, EmbeddingResponse

class Lengths(Task[EmbeddingRequest, EmbeddingResponse]):
    '''Each vector repeats the length of its input, or of its media, in every dimension.'''

    def post_init(self) -> None:
        self.echo = EchoTask()

    def invoke(self, request: EmbeddingRequest) -> EmbeddingResponse:
        media = [part.media for message in request.messages or () for part in message.media_parts]
        lengths = [len(text) for text in request.input] or [sum(len(medium.data.data) for medium in media)]
        vectors = [array("f", [length] * (request.dimensions or 2)) for length in lengths]
        embeddings = [b64encode(vector.tobytes()).decode() for vector in vectors]
        return EmbeddingResponse(embeddings=embeddings, prompt_tokens=7)

app = App(name="lengths", paths=[Lengths()])
"""

EXITS = """
from cornserve import App, Task
from cornserve.task import ExecutorSpec
from cornserve_echo import EchoRequest, EchoResponse, EchoTask

class Exiting(EchoTask):
    def executor_spec(self) -> ExecutorSpec:
        raise SystemExit(3)

class Say(Task[EchoRequest, EchoResponse]):
    def post_init(self) -> None:
        self.echo = Exiting()

    def invoke(self, request: EchoRequest) -> EchoResponse:
        return self.echo.invoke(request)

app = App(name="echo", paths=[Say()])
"""

PAINTER = """
from base64 import b64encode
from cornserve import App, Task
from cornserve_echo import EchoRequest, EchoTask
from cornserve_tasklib import GeneratedImage, ImageGenerationRequest, ImageGenerationResponse, ImageProgress, Usage

class Painter(Task[ImageGenerationRequest, ImageGenerationResponse]):
    '''Writes the options of the request into text files instead of drawing images.'''

    def post_init(self) -> None:
        self.echo = EchoTask()

    def invoke(self, request: ImageGenerationRequest) -> ImageGenerationResponse:
        options = request.model_dump(exclude_defaults=True)
        output = self.echo.invoke(EchoRequest(text=" ".join(f"{k}={v}" for k, v in options.items())))
        file = b64encode(output.text.encode()).decode()
        return ImageGenerationResponse(
            progress=output.words.map(lambda word: ImageProgress(image=0, step=len(word), steps=99, b64_json=word)),
            images=[GeneratedImage(b64_json=file, seed=(request.seed or 0) + number) for number in range(request.n)],
            usage=Usage(prompt_tokens=5, completion_tokens=16),
        )

app = App(name="painter", paths=[Painter()])
"""

RETOUCHER = """
from base64 import b64encode
from cornserve import App, Task
from cornserve_echo import EchoRequest, EchoTask
from cornserve_tasklib import GeneratedImage, ImageEditRequest, ImageGenerationResponse, ImageProgress

class Retoucher(Task[ImageEditRequest, ImageGenerationResponse]):
    '''Writes the options and the properties of the image into text files instead of changing the image.'''

    def post_init(self) -> None:
        self.echo = EchoTask()

    def invoke(self, request: ImageEditRequest) -> ImageGenerationResponse:
        image = request.image
        options = request.model_dump(exclude={"image"}, exclude_defaults=True)
        words = [f"{image.format}:{image.width}x{image.height}", *(f"{k}={v}" for k, v in options.items())]
        output = self.echo.invoke(EchoRequest(text=" ".join(words)))
        return ImageGenerationResponse(
            progress=output.words.map(lambda word: ImageProgress(image=0, step=1, steps=1, b64_json=word)),
            images=[GeneratedImage(b64_json=b64encode(output.text.encode()).decode(), seed=request.seed or 0)],
            size="96x64",
        )

app = App(name="retoucher", paths=[Retoucher()])
"""

SPEAKER = """
from base64 import b64encode
from cornserve import App, Task
from cornserve_echo import EchoRequest, EchoTask
from cornserve_tasklib import SpeechChunk, SpeechRequest, SpeechResponse, Usage

def speak(word):
    return SpeechChunk(audio=b64encode(word.encode() + b" ").decode(), seconds=1, sample_rate=16_000)

class Speaker(Task[SpeechRequest, SpeechResponse]):
    '''Sends the options of the request as text instead of speech.'''

    def post_init(self) -> None:
        self.echo = EchoTask()

    def invoke(self, request: SpeechRequest) -> SpeechResponse:
        options = request.model_dump(exclude_defaults=True)
        output = self.echo.invoke(EchoRequest(text=" ".join(f"{k}={v}" for k, v in options.items())))
        return SpeechResponse(
            audio=output.words.map(speak), seconds=2.5, usage=Usage(prompt_tokens=5, completion_tokens=16)
        )

app = App(name="speaker", paths=[Speaker()])
"""

SPEAKING_PARROT = """
from base64 import b64encode
from cornserve import App, Task
from cornserve_echo import EchoRequest, EchoTask
from cornserve_tasklib import ChatResponse, SpokenChatRequest, SpokenChatResponse, SpokenChunk, TalkerResponse, Usage

def speak(word):
    return SpokenChunk(pcm=b64encode(word.encode()).decode())

class SpeakingParrot(Task[SpokenChatRequest, SpokenChatResponse]):
    '''Repeats the last message. The speech is the name of the voice and the text instead of samples.'''

    def post_init(self) -> None:
        self.echo = EchoTask()

    def invoke(self, request: SpokenChatRequest) -> SpokenChatResponse:
        text = request.chat.messages[-1].content
        message = ChatResponse(text=text, usage=Usage(prompt_tokens=3, completion_tokens=2))
        if "audio" not in request.modalities:
            return SpokenChatResponse(message=message)
        speech = f"{request.voice} {request.response_format} {text}"
        words = self.echo.invoke(EchoRequest(text=speech)).words
        audio = b64encode(speech.encode()).decode()
        reason = "length" if len(text) > 20 else "stop"
        return SpokenChatResponse(
            audio=words.map(speak), message=message, speech=TalkerResponse(audio=audio, finish_reason=reason)
        )

app = App(name="speaking-parrot", paths=[SpeakingParrot()])
"""

ILLUSTRATOR = """
from cornserve import App, Task
from cornserve_echo import EchoRequest, EchoTask
from cornserve_tasklib import ChatRequest, ChatResponse, GeneratedImage

class Illustrator(Task[ChatRequest, ChatResponse]):
    '''Responds with the last message and two images.'''

    def post_init(self) -> None:
        self.echo = EchoTask()

    def invoke(self, request: ChatRequest) -> ChatResponse:
        images = [GeneratedImage(b64_json=content, seed=1) for content in ("aWU=", "aWY=")]
        text = self.echo.invoke(EchoRequest(text=request.messages[-1].content)).text
        return ChatResponse(text=text, images=images)

app = App(name="illustrator", paths=[Illustrator()])
"""

CHATTERBOX = """
import sys
from pydantic import BaseModel
from cornserve import App, Task
from cornserve_echo import EchoRequest, EchoTask

class Order(BaseModel):
    words: list[str]

class Result(BaseModel):
    text: str

class Chatterbox(Task[Order, Result]):
    '''Prints each word before it waits for its echo.'''

    def post_init(self) -> None:
        self.echo = EchoTask()

    def invoke(self, order: Order) -> Result:
        for word in order.words:
            print("word", word)
            self.echo.invoke(EchoRequest(text=word)).text
        print("unfinished", end="", file=sys.stderr)
        return Result(text=order.words[0])

app = App(name="chatterbox", paths=[Chatterbox()])
"""

SCRIBE = """
from cornserve import App, Task
from cornserve_echo import EchoRequest, EchoTask
from cornserve_tasklib import TranscriptionChunk, TranscriptionRequest, TranscriptionResponse, Usage

class Scribe(Task[TranscriptionRequest, TranscriptionResponse]):
    '''Responds with the properties of the audio and the options of the request.'''

    def post_init(self) -> None:
        self.echo = EchoTask()

    def invoke(self, request: TranscriptionRequest) -> TranscriptionResponse:
        options = request.model_dump(exclude_defaults=True, exclude={"audio"})
        audio = f"{request.audio.format} {request.audio.seconds:g} {request.audio.digest[:8]}"
        output = self.echo.invoke(EchoRequest(text=" ".join([audio, *(f"{k}={v}" for k, v in options.items())])))
        return TranscriptionResponse(
            chunks=output.words.map(lambda word: TranscriptionChunk(text=word + " ")),
            language=request.language or "en",
            seconds=request.audio.seconds,
            usage=Usage(prompt_tokens=5, completion_tokens=2),
        )

app = App(name="scribe", paths=[Scribe()])
"""

JUDGE = """
from cornserve import App, Task
from cornserve_echo import EchoTask
from cornserve_tasklib import ScoringRequest, ScoringResponse

class Judge(Task[ScoringRequest, ScoringResponse]):
    '''Each score is the length of the document, with the length of the query in eighths.'''

    def post_init(self) -> None:
        self.echo = EchoTask()

    def invoke(self, request: ScoringRequest) -> ScoringResponse:
        return ScoringResponse(
            scores=[len(document) + len(query) / 8 for query, document in request.pairs], prompt_tokens=7
        )

app = App(name="judge", paths=[Judge()])
"""

CLERK = """
from cornserve import App, Task
from cornserve_echo import EchoTask
from cornserve_tasklib import ClassificationRequest, ClassificationResponse

class Clerk(Task[ClassificationRequest, ClassificationResponse]):
    '''The second class of a text has an eighth for each of its characters or tokens. Only the first one has a name.'''

    def post_init(self) -> None:
        self.echo = EchoTask()

    def invoke(self, request: ClassificationRequest) -> ClassificationResponse:
        probs = [[1 - len(given) / 8, len(given) / 8] for given in request.input]
        return ClassificationResponse(
            probs=probs,
            labels=["short" if short > long else None for short, long in probs],
            prompt_tokens=7,
        )

app = App(name="clerk", paths=[Clerk()])
"""

SEER = """
from cornserve import App, Task
from cornserve_echo import EchoRequest, EchoTask
from cornserve_tasklib import ChatChunk, ChatRequest, ChatResponse, Image

def describe(medium):
    size = f"{medium.width}x{medium.height}" if isinstance(medium, Image) else f"{medium.seconds:g}s"
    options = medium.options.key and f":{medium.options.key}"
    return f"{medium.where}={medium.format}:{size}:{len(medium.data.data)}:{medium.digest[:8]}{options}"

class Seer(Task[ChatRequest, ChatResponse]):
    '''Responds with the properties of each medium that the gateway has determined.'''

    def post_init(self) -> None:
        self.echo = EchoTask()

    def invoke(self, request: ChatRequest) -> ChatResponse:
        # The gateway rejects fields that the app does not read.
        request.mm_processor_kwargs, request.media_io_kwargs
        output = self.echo.invoke(EchoRequest(text=" ".join(map(describe, request.media)) or "nothing"))
        return ChatResponse(chunks=output.words.map(lambda word: ChatChunk(text=word + " ")))

app = App(name="seer", paths=[Seer()])
"""

RELAY = """
from cornserve import App, Task
from cornserve_echo import EchoRequest, EchoTask
from cornserve_tasklib import ChatChunk, ChatRequest, ChatResponse, Usage

class Relay(Task[ChatRequest, ChatResponse]):
    '''Responds with the chat as JSON, cut if it has max_tokens. The prompt "fail" fails after two words.'''

    def post_init(self) -> None:
        self.echo = EchoTask()

    def invoke(self, request: ChatRequest) -> ChatResponse:
        request = request.model_copy()  # uses all fields
        if request.messages[-1].content == "fail":
            words = self.echo.invoke(EchoRequest(text="one two", fail="boom")).words
            return ChatResponse(chunks=words.map(lambda word: ChatChunk(text=word)))
        return ChatResponse(
            text=request.model_dump_json(exclude_defaults=True, exclude_none=True),
            finish_reason="length" if request.max_tokens else "stop",
            usage=Usage(prompt_tokens=3, completion_tokens=2, cached_tokens=1),
        )

app = App(name="relay", paths=[Relay()])
"""

REVISER = """
from collections.abc import Generator
from typing import Any
from cornserve import App, Task
from cornserve_echo import EchoRequest, EchoTask
from cornserve_tasklib import ChatChunk, ChatRequest, ChatResponse, CompletionRequest, Usage

class Reviser(Task[ChatRequest | CompletionRequest, ChatResponse]):
    '''Repeats the prompt as a draft, and then, in a second, its capitals.'''

    def post_init(self) -> None:
        self.echo = EchoTask()

    def invoke(self, request: ChatRequest | CompletionRequest) -> Generator[Any, None, ChatResponse]:
        prompt = request.messages[-1].content if isinstance(request, ChatRequest) else request.prompt
        yield "Draft: "
        draft = self.echo.invoke(EchoRequest(text=prompt))
        yield draft.words.map(lambda word: ChatChunk(text=word + " "))
        capitals = draft.text.upper()
        if capitals == "CRASH":
            raise ValueError("no revision")
        yield ChatResponse(text="Revision: ")
        revision = self.echo.invoke(EchoRequest(text=capitals, seconds=1))
        yield revision.words.map(lambda word: ChatChunk(text=word + " "))
        return ChatResponse(text=revision.text, usage=Usage(prompt_tokens=1, completion_tokens=2))

app = App(name="reviser", paths=[Reviser()])
"""

COUNTDOWN = """
from collections.abc import Generator
from typing import Any
from cornserve import App, Task
from cornserve_echo import EchoRequest, EchoResponse, EchoTask

class Count(Task[EchoRequest, EchoResponse]):
    '''Yields the number of each word and the words.'''

    def post_init(self) -> None:
        self.echo = EchoTask()

    def invoke(self, request: EchoRequest) -> Generator[Any, None, EchoResponse]:
        for number, word in enumerate(request.text.split()):
            yield {"number": number}
            output = self.echo.invoke(EchoRequest(text=word + " " + word))
            yield output.words
            assert output.text
        return output

class Countdown(Task[EchoRequest, EchoResponse]):
    def post_init(self) -> None:
        self.count = Count()

    def invoke(self, request: EchoRequest) -> Generator[Any, None, EchoResponse]:
        output = yield from self.count.invoke(request)
        yield "end"
        return output

app = App(name="countdown", paths=[Countdown()])
"""

STARTS = """
import os
from cornserve import App, Task
from cornserve_echo import EchoRequest, EchoTask
from pydantic import BaseModel

starts: dict[str, int] = {}

class Starts(BaseModel):
    starts: int

class Count(Task[EchoRequest, Starts]):
    '''Makes two calls, one after the other, and returns how often its code has started for the text.'''

    def post_init(self) -> None:
        self.echo = EchoTask()

    def invoke(self, request: EchoRequest) -> Starts:
        starts[request.text] = starts.get(request.text, 0) + 1
        text = str(os.getpid()) if request.text == "process id" else request.text
        first = self.echo.invoke(EchoRequest(text=text, seconds=request.seconds))
        second = self.echo.invoke(EchoRequest(text=first.text))
        assert second.text == text
        return Starts(starts=starts[request.text])

app = App(name="starts", paths=[Count()])
"""
