"""`/v1/models`."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel

from cornserve.gateway.context import Context
from cornserve.gateway.served_app import ServedApp

router = APIRouter()


class Model(BaseModel):
    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "cornserve"
    uid: str
    generation: int
    """The version of the app `uid` that this gateway has loaded."""


class ModelList(BaseModel):
    object: Literal["list"] = "list"
    data: list[Model]


@router.get("/v1/models")
async def list_models(context: Context) -> ModelList:
    """Lists the apps that the gateway serves."""
    return ModelList(data=[_model(name, served_app) for name, served_app in sorted(context.apps.served().items())])


@router.get("/v1/models/{name}")
async def get_model(name: str, context: Context) -> Model:
    return _model(name, context.apps.get(name))


def _model(name: str, served_app: ServedApp) -> Model:
    return Model(id=name, created=served_app.created, uid=served_app.uid, generation=served_app.route.generation)
