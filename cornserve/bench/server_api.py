"""The differences of the OpenAI-compatible APIs of servers, as far as generated requests need them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

ServerName = Literal["cornserve", "vllm", "vllm-omni", "sglang", "dynamo"]

Operation = Literal["chats", "chats with spoken responses", "images", "texts to speak", "requests of an app"]


@dataclass(frozen=True, slots=True)
class ServerApi:
    """The API of a server.

    Args:
        operations: the operations that it has.
        streams_speech: whether `/v1/audio/speech` streams events (`stream_format`). Otherwise, it streams samples.
        steps_in: the field of a request for images that has the number of denoising steps, or an empty text for the
            request itself.
    """

    name: ServerName
    operations: frozenset[Operation]
    streams_speech: bool = False
    steps_in: str = ""

    def find_missing(self, operation: Operation) -> str | None:
        """Returns the reason why the server does not serve an operation, or None."""
        if operation in self.operations:
            return None
        return f"--server {self.name}: this server does not serve {operation}: give other requests"

    def adapt(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the body of a request in the form of the server."""
        adapted = dict(body)
        if self.steps_in and "num_inference_steps" in body:
            adapted[self.steps_in] = {"num_inference_steps": adapted.pop("num_inference_steps")}
        return adapted


SERVERS: Final[Mapping[ServerName, ServerApi]] = {
    api.name: api
    for api in (
        ServerApi(
            "cornserve",
            frozenset(("chats", "chats with spoken responses", "images", "texts to speak", "requests of an app")),
            streams_speech=True,
        ),
        ServerApi("vllm", frozenset(("chats",))),
        ServerApi(
            "vllm-omni",
            frozenset(("chats", "chats with spoken responses", "images", "texts to speak")),
            streams_speech=True,
        ),
        ServerApi("sglang", frozenset(("chats", "images"))),
        ServerApi("dynamo", frozenset(("chats", "images", "texts to speak")), steps_in="nvext"),
    )
}
