"""`/v1/rerank` and `/v1/score`, in the formats of vLLM. OpenAI's API has no such operations."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from annotated_types import Ge
from fastapi import Request
from pydantic import AliasChoices, BaseModel, BeforeValidator, Field
from pydantic_core import to_json

from cornserve.app.response_readers import SCORES
from cornserve.app.unused_fields import tracked
from cornserve.gateway.context import Context
from cornserve.gateway.endpoints.openai.common_fields import OpenAIRequest, PromptUsage, Text, check_app, prompt_usage
from cornserve.gateway.endpoints.read_request import read_fields
from cornserve.gateway.endpoints.request_handler import RequestHandler, SendResponse
from cornserve.gateway.request.session import Session
from cornserve_tasklib.sampling_fields import listed
from cornserve_tasklib.scoring import Documents, ScoringOptions, ScoringRequest, Texts

OneOrManyTexts = Annotated[Texts, BeforeValidator(listed, json_schema_input_type=str | Texts)]
"""A text or a list of texts."""
OneOrManyDocuments = Annotated[Documents, BeforeValidator(listed, json_schema_input_type=str | Documents)]
"""A document or a list of documents."""


class ScoreRequest(ScoringRequest, OpenAIRequest):
    """vLLM's request body. The texts have one of several names."""

    queries: OneOrManyTexts = Field(  # type: ignore[pydantic-alias]
        validation_alias=AliasChoices("queries", "text_1", "data_1")
    )
    documents: OneOrManyDocuments = Field(  # type: ignore[pydantic-alias]
        validation_alias=AliasChoices("documents", "items", "text_2", "data_2")
    )


class RerankRequest(ScoringOptions, OpenAIRequest):
    """vLLM's request body, which is that of Jina's and Cohere's rerank API."""

    query: Text
    documents: OneOrManyDocuments
    top_n: Annotated[int, Ge(0)] = 0
    """The number of results. 0 stands for all."""
    return_documents: bool = True
    """Whether the results contain the documents."""


class ScoredPair(BaseModel):
    index: int
    object: Literal["score"] = "score"
    score: float


class ScoreList(BaseModel):
    id: str
    object: Literal["list"] = "list"
    created: int
    model: str
    data: list[ScoredPair]
    usage: PromptUsage


class RankedText(BaseModel):
    text: str


class RankedDocument(BaseModel):
    index: int
    document: RankedText | None = None
    relevance_score: float


class Ranking(BaseModel):
    id: str
    model: str
    usage: PromptUsage
    results: list[RankedDocument]


async def create_score(request: Request, context: Context) -> SendResponse:
    """Scores pairs of texts."""
    body = await read_fields(request, ScoreRequest)
    handler = await RequestHandler.create(context, body.model, request, type(body))
    check_app(handler.served_app, body.model, "scoring")

    async def respond(session: Session) -> bytes:
        found = await session.run(tracked(ScoringRequest, body), SCORES)
        data = [{"index": index, "object": "score", "score": score} for index, score in enumerate(found.scores)]
        head = {"id": f"score-{handler.ids.unique}", "object": "list", "created": int(time.time()), "model": body.model}
        return to_json({**head, "data": data, "usage": prompt_usage(found.prompt_tokens)})

    return await handler.respond(respond)


async def create_ranking(request: Request, context: Context) -> SendResponse:
    """Sorts documents by their relevance to a query."""
    body = await read_fields(request, RerankRequest)
    handler = await RequestHandler.create(context, body.model, request, type(body))
    check_app(handler.served_app, body.model, "scoring")

    async def respond(session: Session) -> bytes:
        found = await session.run(tracked(ScoringRequest, body, queries=[body.query]), SCORES)
        results = _ranked(body, found.scores)[: body.top_n or None]
        head = {"id": f"rerank-{handler.ids.unique}", "model": body.model, "usage": prompt_usage(found.prompt_tokens)}
        return to_json({**head, "results": results})

    return await handler.respond(respond)


def _ranked(body: RerankRequest, scores: Sequence[float]) -> list[dict[str, Any]]:
    """Returns the results, the most relevant first."""
    order = sorted(range(len(scores)), key=lambda index: scores[index], reverse=True)
    documents = [{"document": {"text": text}} if body.return_documents else {} for text in body.documents]
    return [{"index": index, **documents[index], "relevance_score": scores[index]} for index in order]
