"""Answers in a sentence, and draws a picture for the answer.

    cornserve deploy examples/illustrate.py
    cornserve chat illustrate "Tell me about cornfields." --save corn.png

A client that streams receives the text while the model generates it, and the picture at the end.
"""

from collections.abc import Generator
from typing import Any

from cornserve import App, Task
from cornserve_tasklib import (
    ChatMessage,
    ChatRequest,
    ChatResponse,
    GenerateImages,
    ImageGenerationRequest,
    LLMTask,
)

WRITER = "Qwen/Qwen3-4B-Instruct-2507"
"""The Hugging Face id, or the absolute path, of a language model."""

PAINTER = "Qwen/Qwen-Image"
"""The Hugging Face id, or the absolute path, of a model that draws."""

STYLE = ChatMessage(role="system", content="Answer in one sentence.")


class Illustrate(Task[ChatRequest, ChatResponse]):
    writer_id: str
    painter_id: str
    size: str = "1024x1024"

    def post_init(self) -> None:
        self.writer = LLMTask(model_id=self.writer_id)
        self.painter = GenerateImages(model_id=self.painter_id)

    def invoke(self, request: ChatRequest) -> Generator[Any, None, ChatResponse]:
        answer = self.writer.invoke(request.model_copy(update={"messages": [STYLE, *request.messages]}))
        yield answer
        question = f"Describe a picture for this text in one sentence: its subject, colors and light.\n\n{answer.text}"
        scene = self.writer.invoke(ChatRequest.ask(question, max_tokens=100, temperature=0))
        prompt = f"An illustration. {scene.text}"
        drawn = self.painter.invoke(ImageGenerationRequest(prompt=prompt, size=self.size))
        reason = answer.finish_reason
        return ChatResponse(text=answer.text, images=drawn.images, finish_reason=reason, usage=answer.usage)


app = App(name="illustrate", paths=[Illustrate(writer_id=WRITER, painter_id=PAINTER)])
