"""Drafts a response, criticizes it and revises it, and shows each step while it happens.

    cornserve deploy examples/visible_steps.py
    cornserve chat visible-steps "Describe a cornfield in one sentence."

`invoke` is a generator. Clients that stream receive what it yields, and other clients the response that it returns.
"""

from collections.abc import Generator
from typing import Any

from cornserve import App, Task
from cornserve.home import Home
from cornserve_tasklib import ChatRequest, ChatResponse, LLMTask

MODEL = Home.default().models / "smollm2"
"""The directory of a language model. `make run` creates a small one here."""

if not MODEL.is_dir():
    raise FileNotFoundError(f"no model directory {MODEL}: create it with `make run`, or set MODEL to your model")


class Revise(Task[ChatRequest, ChatResponse]):
    model_id: str

    def post_init(self) -> None:
        self.llm = LLMTask(model_id=self.model_id)

    def invoke(self, request: ChatRequest) -> Generator[Any, None, ChatResponse]:
        yield "Draft: "
        draft = self.llm.invoke(request)
        yield draft  # streams the text while the model generates it

        yield "\n\nCritique: "
        critique = self.ask(f"What is wrong with this text?\n\n{draft.text}")
        yield critique

        yield "\n\nRevision: "
        revision = self.ask(f"Improve this text.\n\n{draft.text}\n\nCritique: {critique.text}")
        yield revision
        return revision

    def ask(self, question: str) -> ChatResponse:
        return self.llm.invoke(ChatRequest.ask(question, max_tokens=40, temperature=0))


app = App(name="visible-steps", paths=[Revise(model_id=str(MODEL))])
