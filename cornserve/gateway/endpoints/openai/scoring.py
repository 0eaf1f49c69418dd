"""`/v1/rerank` and `/v1/score`, in the formats of vLLM. OpenAI's API has no such operations."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from annotated_types import Ge, MaxLen, MinLen
from fastapi import Request
from pydantic import AliasChoices, BaseModel, BeforeValidator, Field
from pydantic_core import to_json

from cornserve.app.response_readers import SCORES
from cornserve.app.unused_fields import tracked
from cornserve.gateway.context import Context
from cornserve.gateway.endpoints.openai.common_fields import PoolingRequest, PromptUsage, Text, check_app, prompt_usage
from cornserve.gateway.endpoints.read_request import read_fields
from cornserve.gateway.endpoints.request_handler import RequestHandler, SendResponse
from cornserve.gateway.request.session import Session
from cornserve_tasklib.embedding import MAX_INPUTS
from cornserve_tasklib.scoring import ScoringOptions, ScoringRequest


def _text_of(given: object) -> object:
    """Returns the text of a document of Cohere and Jina (`text`), or of vLLM (`content`)."""
    match given:
        case {"text": str(text), **others} if not others:
            return text
        case {"content": [{"type": "text", "text": str(text), **further}], **others} if not (further or others):
            return text
        case Mapping():
            raise ValueError(
                'give a text, {"text": "…"} or {"content": [{"type": "text", "text": "…"}]}: other fields, and media, '
                "are not supported"
            )
    return given


def _listed(given: object) -> object:
    return [given] if isinstance(given, str | Mapping) else given


Object = dict[str, Any]
Query = Annotated[Text, BeforeValidator(_text_of, json_schema_input_type=Text | Object)]
Document = Annotated[str, BeforeValidator(_text_of, json_schema_input_type=str | Object)]
Queries = Annotated[list[Query], MinLen(1), MaxLen(MAX_INPUTS)]
Documents = Annotated[list[Document], MinLen(1), MaxLen(MAX_INPUTS)]
OneOrManyQueries = Annotated[Queries, BeforeValidator(_listed, json_schema_input_type=str | Object | Queries)]
OneOrManyDocuments = Annotated[Documents, BeforeValidator(_listed, json_schema_input_type=str | Object | Documents)]


class ScoreRequest(ScoringRequest, PoolingRequest):
    """vLLM's request body. The texts have one of several names."""

    queries: OneOrManyQueries = Field(  # type: ignore[pydantic-alias]
        validation_alias=AliasChoices("queries", "text_1", "data_1")
    )
    documents: OneOrManyDocuments = Field(  # type: ignore[pydantic-alias]
        validation_alias=AliasChoices("documents", "items", "text_2", "data_2")
    )


class RerankRequest(ScoringOptions, PoolingRequest):
    """vLLM's request body, which is that of Jina's and Cohere's rerank API."""

    query: Query
    documents: OneOrManyDocuments
    top_n: Annotated[int, Ge(0)] = 0
    """The number of results. 0 stands for all."""
    return_documents: bool = True
    """Whether the results contain the documents."""
    rank_fields: Annotated[list[Literal["text"]], MaxLen(1)] | None = None
    """The fields of documents, which have no others."""


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
