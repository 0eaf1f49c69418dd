"""The command line of a request to an app. A separate module, because it imports the task library, which is slow."""

from __future__ import annotations

from collections.abc import Iterable

from cornserve_tasklib import ChatRequest, ImageEditRequest, ImageGenerationRequest, SpeechRequest

_EXAMPLES: dict[type, str] = {
    ChatRequest: "chat {app}",
    ImageGenerationRequest: 'imagine {app} "a field of corn"',
    ImageEditRequest: 'imagine {app} "a field at night" --image FILE',
    SpeechRequest: 'speak {app} "Hello!"',
}
"""Command lines by the type of the request."""


def example_command(app: str, request_types: Iterable[type] = ()) -> str:
    examples = (_EXAMPLES[kind] for kind in request_types if kind in _EXAMPLES)
    return f"cornserve {next(examples, 'invoke {app} JSON').format(app=app)}"
