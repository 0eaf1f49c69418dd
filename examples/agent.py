"""Lets the model choose tools in a loop, and shows each call.

    cornserve deploy examples/agent.py
    cornserve chat agent "Roll a die."

A tool has effects, or depends on more than the request. `recorded` calls it once for the request, although `invoke`
runs several times.
"""

import random
from collections.abc import Generator
from datetime import UTC, datetime
from typing import Any

from cornserve import App, Task, recorded
from cornserve.home import Home
from cornserve_tasklib import ChatMessage, ChatRequest, ChatResponse, LLMTask
from cornserve_tasklib.structured_outputs import StructuredOutputs

MODEL = Home.default().models / "smollm2"
"""The directory of a language model. `make run` creates a small one here."""

if not MODEL.is_dir():
    raise FileNotFoundError(f"no model directory {MODEL}: create it with `make run`, or set MODEL to your model")


def read_clock() -> str:
    return f"It is {datetime.now(UTC):%H:%M} UTC."


def roll_die() -> str:
    return f"The die shows {random.randint(1, 6)}."


TOOLS = {"clock": read_clock, "die": roll_die}
ANSWER = "answer"


class Agent(Task[ChatRequest, ChatResponse]):
    model_id: str
    max_turns: int = 3

    def post_init(self) -> None:
        self.llm = LLMTask(model_id=self.model_id)

    def invoke(self, request: ChatRequest) -> Generator[Any, None, ChatResponse]:
        messages = list(request.messages)
        for _ in range(self.max_turns):
            action = self.choose(messages)
            if action == ANSWER:
                break
            result = recorded(TOOLS[action])
            yield f"[{action}] {result}\n"
            messages += [
                ChatMessage(role="assistant", content=f"I use the {action}."),
                ChatMessage(role="user", content=result),
            ]
        answer = self.llm.invoke(request.model_copy(update={"messages": messages}))
        yield answer
        return answer

    def choose(self, messages: list[ChatMessage]) -> str:
        """Returns the name of a tool, or `ANSWER`."""
        question = ChatMessage(role="user", content=f"Which do you need next: {', '.join(TOOLS)}, or {ANSWER}?")
        choice = StructuredOutputs(choice=[*TOOLS, ANSWER])
        chosen = ChatRequest(messages=[*messages, question], structured_outputs=choice, temperature=0)
        return self.llm.invoke(chosen).text


app = App(name="agent", paths=[Agent(model_id=str(MODEL))])
