"""`/v1/models`, as the official clients read it."""

from __future__ import annotations

import httpx2 as httpx
from anthropic.types import ModelInfo
from openai.types import Model

from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.sources import ECHO, STEPS


async def test_clients_of_openai_and_anthropic_read_the_models(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    empty = (await gateway.get("/v1/models")).json()
    for source in (ECHO, STEPS):
        await deploy(source)
    listed = (await gateway.get("/v1/models")).json()

    assert (empty["data"], empty["first_id"], empty["last_id"], empty["has_more"]) == ([], None, None, False)
    assert (listed["first_id"], listed["last_id"], listed["has_more"]) == ("echo", "steps", False)
    for name, each in zip(("echo", "steps"), listed["data"], strict=True):
        anthropic, openai = ModelInfo.construct(**each), Model.construct(**each)
        assert (anthropic.id, anthropic.display_name, anthropic.type) == (name, name, "model")
        assert (openai.id, openai.object, openai.created) == (name, "model", int(anthropic.created_at.timestamp()))
