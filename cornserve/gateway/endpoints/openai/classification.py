"""`/classify`, in the format of vLLM. OpenAI's API has no such operation."""

from __future__ import annotations

import time
from typing import Literal

from fastapi import Request
from pydantic import BaseModel
from pydantic_core import to_json

from cornserve.app.response_readers import CLASSES
from cornserve.app.unused_fields import tracked
from cornserve.gateway.context import Context
from cornserve.gateway.endpoints.openai.common_fields import (
    PoolingRequest,
    PromptUsage,
    as_list,
    check_app,
    prompt_usage,
)
from cornserve.gateway.endpoints.openai.embeddings import Inputs
from cornserve.gateway.endpoints.read_request import read_fields
from cornserve.gateway.endpoints.request_handler import RequestHandler, SendResponse
from cornserve.gateway.request.session import Session
from cornserve_tasklib.classification import ClassificationRequest


class ClassifyRequest(ClassificationRequest, PoolingRequest):
    """vLLM's request body."""

    input: Inputs  # type: ignore[assignment]


class ClassifiedText(BaseModel):
    index: int
    label: str | None
    """The name of the most likely class."""
    probs: list[float]
    num_classes: int


class ClassificationList(BaseModel):
    id: str
    object: Literal["list"] = "list"
    created: int
    model: str
    data: list[ClassifiedText]
    usage: PromptUsage


async def create_classification(request: Request, context: Context) -> SendResponse:
    """Assigns texts to the classes of a model."""
    body = await read_fields(request, ClassifyRequest)
    handler = await RequestHandler.create(context, body.model, request, type(body))
    check_app(handler.served_app, body.model, "classification")

    async def respond(session: Session) -> bytes:
        found = await session.run(tracked(ClassificationRequest, body, input=as_list(body.input)), CLASSES)
        data = [
            {"index": index, "label": label, "probs": probs, "num_classes": len(probs)}
            for index, (label, probs) in enumerate(zip(found.labels, found.probs, strict=True))
        ]
        head = {
            "id": f"classify-{handler.ids.unique}",
            "object": "list",
            "created": int(time.time()),
            "model": body.model,
        }
        return to_json({**head, "data": data, "usage": prompt_usage(found.prompt_tokens)})

    return await handler.respond(respond)
