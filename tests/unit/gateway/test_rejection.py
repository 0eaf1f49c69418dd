"""The responses to requests that executors have rejected."""

from __future__ import annotations

import pytest

from cornserve.app.media_slots import find_media_slots
from cornserve.gateway.endpoints.openai.chat import ChatCompletionRequest
from cornserve.gateway.endpoints.openai.transcriptions import TranscriptionForm
from cornserve.gateway.endpoints.rejection import rejection
from tests.unit.gateway.image_files import data_url, image_file
from tests.video import as_video


@pytest.mark.parametrize(
    ("message", "param", "code"),
    [
        ("language: the model does not know 'xx'", "language", "invalid_value"),
        ("languages: unknown", None, None),
        ("a prompt: too long", None, None),
        ("too long", None, None),
        ("the maximum context length is 512 tokens", None, "context_length_exceeded"),
        ("prompt: 600 tokens: the maximum context length is 512 tokens", "prompt", "context_length_exceeded"),
    ],
)
def test_a_rejection_names_the_field_of_the_request(message: str, param: str | None, code: str | None) -> None:
    error = rejection(message, TranscriptionForm.model_fields, []).body.error

    assert (error.message, error.param, error.code) == (message, param, code)


def test_a_rejected_medium_is_named_as_by_the_gateway() -> None:
    image = {"type": "image_url", "image_url": {"url": data_url(image_file())}}
    video = {"type": "video_url", "video_url": {"url": "http://any/"}}
    body = {"model": "any", "messages": [{"role": "user", "content": [image, video]}]}
    slots = find_media_slots(ChatCompletionRequest.model_validate(body))
    slots[1].set_media(as_video(2, 64, 64, fps=2))

    error = rejection("messages[0].content[1]: truncated", ChatCompletionRequest.model_fields, slots).body.error

    path = "messages[0].content[1].video_url"
    assert (error.message, error.param, error.code) == (f"{path}: truncated", path, "invalid_video")
