"""Requests for speech with the sizes of a workload."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Self

from pydantic_core import to_json

from cornserve.bench.requests import RequestError, random_text
from cornserve.bench.server_api import Operation
from cornserve_planner.requests.request import WorkloadRequest


@dataclass(frozen=True, slots=True)
class GeneratedSpeech:
    """Requests to speak random words, in the duration that the model gives them.

    Args:
        words: words of about one token each.
    """

    words: int

    @classmethod
    def of(cls, request: WorkloadRequest) -> Self:
        """Returns a request to speak a text. Raises `RequestError` for requests with media."""
        if media := [name for name in ("images", "videos", "audios") if getattr(request, name)]:
            raise RequestError(f"has {media[0]} and only audio output, which cannot be generated together")
        return cls(request.text_tokens)

    @property
    def operation(self) -> Operation:
        return "texts to speak"

    @property
    def key(self) -> bytes:
        return repr(self).encode()

    def make(self, random: Random) -> bytes:
        return to_json(self.body(random))

    def body(self, random: Random) -> Mapping[str, Any]:
        return {"input": random_text(self.words, random)}
