"""Templates of requests: fixed ones, and those of a workload with new contents each time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Protocol

from pydantic_core import to_json

from cornserve.app.app import App
from cornserve.bench.workload_chats import GeneratedChat
from cornserve.bench.workload_requests import GeneratedRequest, generated_requests
from cornserve_tasklib.chat_request import ChatRequest
from cornserve_tasklib.speaking_chat import SpokenChatRequest

MAX_TEMPLATES = 500
"""The maximum number of requests that are kept. Longer workloads are sampled at even intervals."""


class RequestTemplate(Protocol):
    @property
    def key(self) -> bytes:
        """A text that is equal for equal templates only."""
        ...

    def make(self, random: Random) -> bytes:
        """Returns a request as JSON."""
        ...


@dataclass(frozen=True, slots=True)
class FixedRequest:
    """The same request each time. Caches of the executors may serve it."""

    key: bytes

    def make(self, random: Random) -> bytes:
        return self.key


@dataclass(frozen=True, slots=True)
class SpokenChat:
    """A chat for an app that speaks, as a `SpokenChatRequest`. The response is in text alone unless it is spoken."""

    chat: GeneratedChat

    @property
    def key(self) -> bytes:
        return repr(self).encode()

    def make(self, random: Random) -> bytes:
        body = self.chat.body(random)
        modalities = body.pop("modalities", ["text"])
        return to_json({"chat": body, "modalities": modalities})


def native_template(request: GeneratedRequest, app: App) -> RequestTemplate:
    """Returns a template of the app's own requests."""
    speaks = SpokenChatRequest in app.request_types and ChatRequest not in app.request_types
    return SpokenChat(request) if speaks and isinstance(request, GeneratedChat) else request


def workload_templates(path: Path, app: App) -> list[RequestTemplate]:
    """Returns templates of a planner's file of requests, as requests of the app.

    Raises `RequestError` for requests that cannot be generated, and the planner's `InvalidInputError`.
    """
    sampled: list[GeneratedRequest] = []
    step = 1
    for number, request in enumerate(generated_requests(path)):
        if number % step == 0:
            sampled.append(request)
        if len(sampled) > MAX_TEMPLATES:
            sampled, step = sampled[::2], 2 * step
    return [native_template(request, app) for request in sampled]
