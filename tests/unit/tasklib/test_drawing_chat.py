"""Chats that draw."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from cornserve import UnitTask
from cornserve.testing import TaskRun, run_task
from cornserve_tasklib import (
    Chat,
    ChatMessage,
    ChatRequest,
    ChatResponse,
    DrawingChat,
    GenerateImages,
    ImageGenerationRequest,
)
from cornserve_tasklib.chat_response import Usage
from cornserve_tasklib.generated_image import GeneratedImage

CHAT = DrawingChat(chat=Chat(model_id="llm"), drawer=GenerateImages(model_id="drawer"), size="64x64")
FOX = GeneratedImage(b64_json="aWU=", seed=7)
USAGE = Usage(prompt_tokens=10, completion_tokens=1)


def answers(decision: str, description: str = "A red fox.") -> Callable[[UnitTask[Any, Any], Any], Mapping[str, Any]]:
    def answer(task: UnitTask[Any, Any], request: Any) -> Mapping[str, Any]:
        if isinstance(request, ImageGenerationRequest):
            return {"images": [FOX], "usage": USAGE}
        if "answer or draw" in request.messages[-1].content:
            return {"text": decision, "usage": USAGE}
        is_description = "Describe the picture" in request.messages[-1].content
        text = description if is_description else "Foxes are mammals."
        return {"text": text, "finish_reason": "length" if request.max_tokens == 3 else "stop", "usage": USAGE}

    return answer


def chat(text: str, decision: str = "draw", description: str = "A red fox.", **fields: Any) -> TaskRun[ChatResponse]:
    request = ChatRequest(messages=[ChatMessage(role="user", content=text)], **fields)
    return run_task(CHAT, request, answers(decision, description))


def test_a_request_for_a_picture_gets_a_description_and_an_image() -> None:
    run = chat("Draw a fox.", seed=7, temperature=0.3)

    [decision, description, image] = [call.request for call in run.calls]
    assert (run.response.text, run.response.images) == ("A red fox.", [FOX])
    assert run.response.usage == Usage(prompt_tokens=30, completion_tokens=3)
    assert decision.structured_outputs.choice == ["draw", "answer"]
    assert "user: Draw a fox." in decision.messages[0].content
    assert description.temperature == 0.3
    assert (image.prompt, image.size, image.seed) == ("A red fox.", "64x64", 7)


@pytest.mark.parametrize(("max_tokens", "finish_reason"), [(3, "length"), (300, "stop")])
def test_the_limits_of_tokens_are_those_of_the_description(max_tokens: int, finish_reason: str) -> None:
    run = chat("Draw a fox.", min_tokens=max_tokens, max_tokens=max_tokens)

    description = run.calls[1].request
    assert description.min_tokens == description.max_tokens == min(max_tokens, 128)
    assert run.response.finish_reason == finish_reason


def test_another_request_gets_the_response_of_the_language_model() -> None:
    run = chat("What is a fox?", "answer")

    assert run.response.text == "Foxes are mammals."
    assert run.response.images == []
    assert run.calls[1].request.messages[0].content == "What is a fox?"
    assert not run.calls_of("ImageGenerator")


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 2},
        {"logprobs": True},
        {"response_format": {"type": "json_object"}},
        {"structured_outputs": {"choice": ["fox", "dog"]}},
        {"tools": [{"type": "function", "function": {"name": "find"}}]},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_a_request_that_only_a_text_can_satisfy_is_not_drawn(fields: dict[str, Any]) -> None:
    run = chat("Draw a fox.", **fields)

    assert [call.task.name for call in run.calls] == ["LLMTask"]
    assert run.response.text == "Foxes are mammals."


def test_the_conversation_is_drawn_if_the_model_describes_nothing() -> None:
    run = chat("Draw a fox.", description=" ", seed=-1)

    [image] = run.calls_of("ImageGenerator")
    assert image.request.prompt == "user: Draw a fox."
    assert image.request.seed >= 0
