"""Writes a response, asks the model to criticize it, and improves it until the critic approves.

    cornserve deploy examples/branch_and_loop.py
    cornserve chat branch-and-loop "Describe a cornfield in one sentence."

The task is plain Python. Reading `text` waits for the model and returns an ordinary string to branch and loop on.
"""

from cornserve import App, Task
from cornserve.home import Home
from cornserve_tasklib import ChatRequest, ChatResponse, LLMTask

MODEL = Home.default().models / "smollm2"
"""The directory of a language model. `make run` creates a small one here."""

if not MODEL.is_dir():
    raise FileNotFoundError(f"no model directory {MODEL}: create it with `make run`, or set MODEL to your model")


class Improve(Task[ChatRequest, ChatResponse]):
    model_id: str
    rounds: int = 2

    def post_init(self) -> None:
        self.llm = LLMTask(model_id=self.model_id)

    def invoke(self, request: ChatRequest) -> ChatResponse:
        answer = self.llm.invoke(request)
        for _ in range(self.rounds):
            critique = self.ask(f"Is this good? Say OK, or what is wrong with it.\n\n{answer.text}").text
            if "OK" in critique:
                break
            answer = self.ask(f"Improve this text.\n\n{answer.text}\n\nCritique: {critique}")
        return answer

    def ask(self, question: str) -> ChatResponse:
        return self.llm.invoke(ChatRequest.ask(question, max_tokens=40, temperature=0))


app = App(name="branch-and-loop", paths=[Improve(model_id=str(MODEL))])
