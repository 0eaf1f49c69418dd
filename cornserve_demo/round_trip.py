"""Draws a text with one model, and names the shapes of the image with another one."""

from __future__ import annotations

from base64 import b64decode
from hashlib import sha256
from pathlib import Path

from pydantic import BaseModel, Field, field_validator

import cornserve_demo
from cornserve import App, Task
from cornserve.task import Blob
from cornserve_demo.shapes import QUESTION, SIZE, describe, parse
from cornserve_tasklib import ChatMessage, ChatRequest, ImageGenerationRequest, ImageGenerator, LLMTask
from cornserve_tasklib.media import Image, MediaPart
from cornserve_tasklib.messages import ContentPart, TextPart

MODELS = Path(cornserve_demo.__file__).parent
STEPS = 12
GUIDANCE = 2
MAX_TOKENS = 12


class Drawing(BaseModel):
    """A text to draw, such as "red cross and blue square". Other words than those of the training are refused."""

    prompt: str
    seed: int = Field(default=0, ge=0, lt=1 << 32)

    @field_validator("prompt")
    @classmethod
    def _check_words(cls, prompt: str) -> str:
        return describe(parse(prompt))


class NamedDrawing(BaseModel):
    """An image as a PNG file in base64, and what the vision-language model sees in it."""

    b64_json: str
    answer: str


class RoundTrip(Task[Drawing, NamedDrawing]):
    """Draws a text, and reads the image."""

    def post_init(self) -> None:
        self.drawer = ImageGenerator(model_id=str(MODELS / "drawer-model"))
        self.reader = LLMTask(model_id=str(MODELS / "reader-model"))

    def invoke(self, request: Drawing) -> NamedDrawing:
        drawn = self.drawer.invoke(
            ImageGenerationRequest(
                prompt=request.prompt,
                seed=request.seed,
                size=f"{SIZE}x{SIZE}",
                num_inference_steps=STEPS,
                true_cfg_scale=GUIDANCE,
            )
        )
        file = drawn.images[0].b64_json
        return NamedDrawing(b64_json=file, answer=self.reader.invoke(_question(b64decode(file))).text)


def _question(file: bytes) -> ChatRequest:
    image = Image(
        data=Blob(file), format="PNG", width=SIZE, height=SIZE, digest=sha256(file).hexdigest(), where="drawing"
    )
    content: list[ContentPart] = [MediaPart(type="media", media=image), TextPart(type="text", text=QUESTION)]
    message = ChatMessage(role="user", content=content)
    return ChatRequest(messages=[message], temperature=0, max_tokens=MAX_TOKENS)


app = App(name="demo", paths=[RoundTrip()])
