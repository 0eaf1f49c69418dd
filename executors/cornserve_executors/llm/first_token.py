"""The first token of a response, which a prefill executor samples for a decode executor."""

from __future__ import annotations

from pydantic import BaseModel

from cornserve_tasklib.chat_response import ChatChunk


class FirstToken(BaseModel):
    """The metadata of `PrefilledPrompt.first`."""

    chunk: ChatChunk | None = None
    """The first chunk of the response."""
    seed: int | None = None
    """The seed with which the decode executor samples the token again, if the response may end with it, or its text is
    incomplete. Any other token would make such tokens rarer than they are on one executor."""
