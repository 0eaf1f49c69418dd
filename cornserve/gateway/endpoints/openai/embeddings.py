"""`/v1/embeddings`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Literal

from annotated_types import MaxLen
from fastapi import Request
from pydantic import BaseModel, Field
from pydantic_core import to_json

from cornserve.app.media_slots import find_media_slots
from cornserve.app.response_readers import VECTORS
from cornserve.app.unused_fields import tracked
from cornserve.gateway.context import Context
from cornserve.gateway.endpoints.openai.common_fields import (
    OneOrMany,
    PoolingRequest,
    PromptUsage,
    Text,
    as_list,
    check_app,
    prompt_usage,
)
from cornserve.gateway.endpoints.read_request import read_fields
from cornserve.gateway.endpoints.request_handler import RequestHandler, SendResponse
from cornserve.gateway.request.session import Session
from cornserve_tasklib.embedding import MAX_INPUTS, EmbeddingRequest, decode_vector
from cornserve_tasklib.sampling_fields import Tokens

Inputs = OneOrMany[Annotated[list[Text], MaxLen(MAX_INPUTS)], Annotated[list[Tokens], MaxLen(MAX_INPUTS)]]


class CreateEmbeddingRequest(EmbeddingRequest, PoolingRequest):
    """OpenAI's request body."""

    input: Inputs = Field(default_factory=list)  # type: ignore[assignment]
    encoding_format: Literal["float", "base64"] = "float"
    """`base64` encodes 32-bit little-endian floats, and is shorter."""

    @property
    def request(self) -> EmbeddingRequest:
        return tracked(EmbeddingRequest, self, input=as_list(self.input) if self.input else [])


class Embedding(BaseModel):
    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class EmbeddingList(BaseModel):
    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str
    usage: PromptUsage


async def create_embeddings(request: Request, context: Context) -> SendResponse:
    """Embeds texts, or a chat, as vectors."""
    body = await read_fields(request, CreateEmbeddingRequest)
    handler = await RequestHandler.create(context, body.model, request, type(body))
    check_app(handler.served_app, body.model, "embedding")
    handler.set_media(find_media_slots(body))

    async def respond(session: Session) -> bytes:
        vectors = await session.run(body.request, VECTORS)
        return await _embedding_list(body, vectors.embeddings, vectors.prompt_tokens)

    return await handler.respond(respond)


async def _embedding_list(body: CreateEmbeddingRequest, embeddings: Sequence[str], tokens: int) -> bytes:
    """Returns the JSON of an `EmbeddingList`.

    The vectors may have millions of numbers in total: yields to the event loop after each.
    """
    is_base64 = body.encoding_format == "base64"
    data: list[bytes] = []
    for index, embedding in enumerate(embeddings):
        vector = embedding if is_base64 else decode_vector(embedding).tolist()
        data.append(to_json({"object": "embedding", "index": index, "embedding": vector}))
        await asyncio.sleep(0)
    tail = to_json({"model": body.model, "usage": prompt_usage(tokens)})[1:]
    return b'{"object":"list","data":[' + b",".join(data) + b"]," + tail
