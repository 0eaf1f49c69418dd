"""Asks several experts concurrently and summarizes their opinions.

    cornserve deploy examples/fan_out.py
    cornserve invoke fan-out '{"question": "Should I learn to cook?", "experts": ["a doctor", "a banker"]}'

The invocations run concurrently, because the task reads no response before it has recorded all of them.
"""

from pydantic import BaseModel

from cornserve import App, Task
from cornserve.home import Home
from cornserve_tasklib import ChatRequest, ChatResponse, LLMTask

MODEL = Home.default().models / "smollm2"
"""The directory of a language model. `make run` creates a small one here."""

if not MODEL.is_dir():
    raise FileNotFoundError(f"no model directory {MODEL}: create it with `make run`, or set MODEL to your model")


class Question(BaseModel):
    question: str
    experts: list[str] = ["a teacher", "a doctor", "an engineer"]


class Advice(BaseModel):
    opinions: dict[str, str]
    summary: str


class Panel(Task[Question, Advice]):
    model_id: str

    def post_init(self) -> None:
        self.llm = LLMTask(model_id=self.model_id)

    def invoke(self, request: Question) -> Advice:
        answers = [self.ask(f"You are {expert}. In one sentence: {request.question}") for expert in request.experts]
        opinions = {expert: answer.text for expert, answer in zip(request.experts, answers, strict=True)}
        everything = "\n".join(f"{expert}: {opinion}" for expert, opinion in opinions.items())
        summary = self.ask(f"Sum this up in one sentence.\n\n{everything}")
        return Advice(opinions=opinions, summary=summary.text)

    def ask(self, question: str) -> ChatResponse:
        return self.llm.invoke(ChatRequest.ask(question, max_tokens=30, temperature=0))


app = App(name="fan-out", paths=[Panel(model_id=str(MODEL))])
