"""`/v1/models`, in a form that clients of OpenAI and of Anthropic read."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel

from cornserve.gateway.context import Context, GatewayContext
from cornserve.gateway.served_app import ServedApp

router = APIRouter()


class Model(BaseModel):
    id: str
    object: Literal["model"] = "model"
    type: Literal["model"] = "model"
    created: int
    created_at: datetime
    display_name: str
    lifecycle: Literal["active"] = "active"
    owned_by: str = "cornserve"
    max_model_len: int | None
    """vLLM's name of the context length: the smallest one of the app's executors. None: no executor has stated it."""
    max_input_tokens: int | None
    """Anthropic's name of the context length."""
    max_tokens: int | None
    """The largest `max_tokens` of a request: the context length."""
    uid: str
    generation: int
    """The version of the app `uid` that this gateway has loaded."""


class ModelList(BaseModel):
    object: Literal["list"] = "list"
    data: list[Model]
    first_id: str | None
    last_id: str | None
    has_more: bool = False


@router.get("/v1/models")
async def list_models(context: Context) -> ModelList:
    """Lists the apps that the gateway serves."""
    models = [_model(context, name, served_app) for name, served_app in sorted(context.apps.served().items())]
    first, last = (models[0].id, models[-1].id) if models else (None, None)
    return ModelList(data=models, first_id=first, last_id=last)


@router.get("/v1/models/{name}")
async def get_model(name: str, context: Context) -> Model:
    return _model(context, name, context.apps.get(name))


def _model(context: GatewayContext, name: str, served_app: ServedApp) -> Model:
    length = context.replicas.max_model_len(served_app.route.group_keys)
    return Model(
        id=name,
        max_model_len=length,
        max_input_tokens=length,
        max_tokens=length,
        created=served_app.created,
        created_at=datetime.fromtimestamp(served_app.created, UTC),
        display_name=name,
        uid=served_app.uid,
        generation=served_app.route.generation,
    )
