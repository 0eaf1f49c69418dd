"""`/tokenize` of apps without a language model. tests/integration/serving has a real one."""

from __future__ import annotations

import httpx2 as httpx
import pytest

from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.sources import CHAT, RELAY

CHATS = {"parrot": CHAT, "relay": RELAY}
"""The first does not pass the request on, and the second creates its response itself."""


@pytest.mark.parametrize("app", CHATS)
async def test_an_app_that_calls_no_model_has_no_tokens(gateway: httpx.AsyncClient, deploy: Deploy, app: str) -> None:
    await deploy(CHATS[app])
    chat = {"model": app, "messages": [{"role": "user", "content": "hello"}]}

    response = await gateway.post("/tokenize", json=chat)

    assert response.status_code == 400
    message = response.json()["error"]["message"]
    assert (
        message == f"the app {app!r} does not return the tokens of its prompt: use the app of the model that it calls"
    )


async def test_the_path_is_named_if_the_app_takes_other_requests(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy(CHAT)

    response = await gateway.post("/tokenize", json={"model": "parrot", "prompt": "hello"})

    assert response.status_code == 400
    assert "does not support /tokenize: call it with POST /v1/chat/completions" in response.json()["error"]["message"]
