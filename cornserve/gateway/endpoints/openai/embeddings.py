"""`/v1/embeddings`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Literal

from annotated_types import MaxLen
from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel
from pydantic_core import to_json

from cornserve.gateway.context import Context
from cornserve.gateway.endpoints.openai.body import Addressed, OneOrMany, Text, as_list, check_app, parse
from cornserve.gateway.endpoints.openapi import takes
from cornserve.gateway.endpoints.plain import PlainRoute
from cornserve.gateway.endpoints.serving import Serving
from cornserve.gateway.http.body import json_of
from cornserve.gateway.request.session import Session
from cornserve.gateway.request.unused_fields import tracked
from cornserve_tasklib.embedding import MAX_INPUTS, EmbeddingRequest, decode_vector
from cornserve_tasklib.sampling import Tokens

router = APIRouter(route_class=PlainRoute)


GivenInputs = OneOrMany[Annotated[list[Text], MaxLen(MAX_INPUTS)], Annotated[list[Tokens], MaxLen(MAX_INPUTS)]]


class CreateEmbeddingRequest(EmbeddingRequest, Addressed):
    """OpenAI's body."""

    input: GivenInputs  # type: ignore[assignment]
    encoding_format: Literal["float", "base64"] = "float"
    """`base64` is shorter: 32-bit floats, little-endian."""

    @property
    def request(self) -> EmbeddingRequest:
        return tracked(EmbeddingRequest, self, input=as_list(self.input))


class Embedding(BaseModel):
    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class EmbeddingUsage(BaseModel):
    prompt_tokens: int
    total_tokens: int


class EmbeddingList(BaseModel):
    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str
    usage: EmbeddingUsage


@router.post("/v1/embeddings", response_model=EmbeddingList, openapi_extra=takes(CreateEmbeddingRequest))
async def create_embeddings(request: Request, context: Context) -> Response:
    """Turns texts into vectors."""
    body = parse(json_of(request), CreateEmbeddingRequest)
    serving = Serving(context, body.model, request)
    check_app(serving.deployed, body.model, "/v1/embeddings", "texts to embed")

    async def answer(session: Session) -> bytes:
        embeddings, tokens = await session.run(body.request, lambda it: (it.embeddings, it.prompt_tokens))
        return await _listed(body, embeddings, tokens)

    return await serving.answer(answer)


async def _listed(body: CreateEmbeddingRequest, embeddings: Sequence[str], tokens: int) -> bytes:
    """An `EmbeddingList`. All vectors together may have millions of numbers: after each, others have their turn."""
    is_base64 = body.encoding_format == "base64"
    data: list[bytes] = []
    for index, embedding in enumerate(embeddings):
        vector = embedding if is_base64 else decode_vector(embedding).tolist()
        data.append(to_json({"object": "embedding", "index": index, "embedding": vector}))
        await asyncio.sleep(0)
    tail = to_json({"model": body.model, "usage": {"prompt_tokens": tokens, "total_tokens": tokens}})[1:]
    return b'{"object":"list","data":[' + b",".join(data) + b"]," + tail
