"""The operations that call models, and the router that runs them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from pydantic import BaseModel
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from cornserve.app.run_record import RunRecord
from cornserve.gateway.context import GatewayContext
from cornserve.gateway.endpoints import native, record
from cornserve.gateway.endpoints.anthropic import messages
from cornserve.gateway.endpoints.anthropic.message_objects import MessageObject, TokenCount
from cornserve.gateway.endpoints.anthropic.message_request import CountTokensRequest, CreateMessageRequest
from cornserve.gateway.endpoints.error_response import error_response
from cornserve.gateway.endpoints.openai import (
    chat,
    classification,
    completions,
    embeddings,
    images,
    responses,
    scoring,
    speech,
    tokenization,
    transcriptions,
)
from cornserve.gateway.endpoints.openai.response_objects import InputTokenCount, ResponseObject
from cornserve.gateway.endpoints.openai.response_request import CreateResponseRequest
from cornserve.gateway.endpoints.request_handler import SendResponse
from cornserve.gateway.endpoints.unknown_fields import ignore_unknown_fields
from cornserve.gateway.errors import ApiError
from cornserve.gateway.http.form_body import FORM
from cornserve.gateway.http.model_paths import ALIASES
from cornserve.gateway.http.request_body import JSON


class Operation(NamedTuple):
    """A POST operation. Its handler has the parameters `request`, `context` and those of the path."""

    path: str
    handler: Callable[..., Awaitable[SendResponse]]
    request: type[BaseModel] | None
    """The type of the request body. If None, any JSON is accepted."""
    response: Any
    content_type: str = JSON
    """The type of the request body."""


INVOKE = Operation("/v1/apps/{name}/invoke", native.invoke, None, None)
RECORD = Operation("/admin/v1/apps/{name}/record", record.record, None, RunRecord)
OPERATIONS = [
    Operation("/v1/chat/completions", chat.create_chat_completion, chat.ChatCompletionRequest, chat.ChatCompletion),
    Operation("/v1/responses", responses.create_response, CreateResponseRequest, ResponseObject),
    Operation("/v1/responses/input_tokens", responses.count_input_tokens, CreateResponseRequest, InputTokenCount),
    Operation("/v1/messages", messages.create_message, CreateMessageRequest, MessageObject),
    Operation("/v1/messages/count_tokens", messages.count_tokens, CountTokensRequest, TokenCount),
    Operation(
        "/v1/completions", completions.create_completion, completions.TextCompletionRequest, completions.TextCompletion
    ),
    Operation(
        "/v1/embeddings", embeddings.create_embeddings, embeddings.CreateEmbeddingRequest, embeddings.EmbeddingList
    ),
    Operation("/v1/rerank", scoring.create_ranking, scoring.RerankRequest, scoring.Ranking),
    Operation("/v1/score", scoring.create_score, scoring.ScoreRequest, scoring.ScoreList),
    Operation(
        "/classify",
        classification.create_classification,
        classification.ClassifyRequest,
        classification.ClassificationList,
    ),
    Operation(
        "/v1/audio/transcriptions",
        transcriptions.create_transcription,
        transcriptions.TranscriptionForm,
        transcriptions.Transcription,
        FORM,
    ),
    Operation(
        "/v1/audio/translations",
        transcriptions.create_translation,
        transcriptions.TranscriptionForm,
        transcriptions.Transcription,
        FORM,
    ),
    Operation("/v1/images/generations", images.create_image, images.CreateImageRequest, images.ImageList),
    Operation("/v1/images/edits", images.edit_image, images.EditImageForm, images.ImageList, FORM),
    Operation("/v1/audio/speech", speech.create_speech, speech.CreateSpeechRequest, None),
    Operation("/tokenize", tokenization.tokenize, tokenization.TokenizeRequest, tokenization.TokenList),
    Operation("/detokenize", tokenization.detokenize, tokenization.DetokenizeRequest, tokenization.DetokenizedText),
    INVOKE,
    RECORD,
]


class V1Router:
    """Calls the handlers of `OPERATIONS`, and passes other requests on to `api`.

    The middleware, routing and dependency injection of FastAPI would take about a quarter of a request's CPU time.
    """

    def __init__(self, api: ASGIApp, context: GatewayContext) -> None:
        self._api = api
        self._context = context
        operations = {operation.path: operation for operation in OPERATIONS}
        self._operations = operations | {alias: operations[path] for alias, path in ALIASES.items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_post = scope["type"] == "http" and scope["method"] == "POST"
        operation, parameters = self._match(scope["path"]) if is_post else (None, {})
        if operation is None:
            await self._api(scope, receive, send)
            return
        scope["route"] = operation
        if self._context.ignores_unknown_fields:
            ignore_unknown_fields(scope)
        try:
            # The request is not bound to a name here: while a slow client reads, only the response stays in memory.
            respond = await operation.handler(request=Request(scope), context=self._context, **parameters)
            await respond(send)
        except Exception as error:
            await error_response(error, Request(scope), self._context)(scope, receive, send)
            if not isinstance(error, ApiError):
                raise  # the server logs the traceback

    def _match(self, path: str) -> tuple[Operation | None, dict[str, str]]:
        if (operation := self._operations.get(path)) is not None:
            return operation, {}
        match path.split("/"):
            case ["", "v1", "apps", name, "invoke"] if name:
                return INVOKE, {"name": name}
            case ["", "admin", "v1", "apps", name, "record"] if name:
                return RECORD, {"name": name}
        return None, {}
