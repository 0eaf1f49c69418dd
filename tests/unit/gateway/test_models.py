"""`/v1/models`, as the official clients read it."""

from __future__ import annotations

import httpx2 as httpx
import pytest
from anthropic.types import ModelInfo
from openai.types import Model

from cornserve_echo.executor import EchoExecutor
from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.sources import ECHO, STEPS
from tests.waiting import until


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
        assert (anthropic.lifecycle, anthropic.max_tokens) == ("active", None)
        assert (openai.id, openai.object, openai.created) == (name, "model", int(anthropic.created_at.timestamp()))


async def test_a_model_has_the_context_length_of_its_executors(
    gateway: httpx.AsyncClient, deploy: Deploy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EchoExecutor, "max_model_len", 512)
    await deploy(ECHO)

    async def is_known() -> bool:
        return (await gateway.get("/v1/models/echo")).json()["max_model_len"] is not None

    await until(is_known)
    (listed,) = (await gateway.get("/v1/models")).json()["data"]

    assert (listed["max_model_len"], listed["max_input_tokens"], listed["max_tokens"]) == (512, 512, 512)
