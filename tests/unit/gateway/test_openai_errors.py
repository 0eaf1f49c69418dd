"""Each error raises the matching exception class of OpenAI's client."""

from __future__ import annotations

import asyncio

import httpx2 as httpx
import openai
import pytest
import pytest_asyncio
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessageParam

from cornserve.access import Access
from cornserve.limits import MIB, Limits
from tests.unit.echo_executors import EchoExecutors
from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.running_gateway import GatewayOptions
from tests.unit.gateway.sources import CHAT
from tests.waiting import until

KEY = "k" * 16


@pytest.fixture(scope="module")
def gateway_options() -> GatewayOptions:
    return GatewayOptions(Limits(in_flight=2, in_flight_per_app=1, body_mib=1), Access((KEY,), "t" * 16))


@pytest_asyncio.fixture(loop_scope="module")
async def client(gateway: httpx.AsyncClient, deploy: Deploy) -> AsyncOpenAI:
    gateway.headers["authorization"] = f"Bearer {KEY}"  # for `deploy`, which waits until the model is listed
    await deploy(CHAT)
    return AsyncOpenAI(base_url=f"{gateway.base_url}/v1", api_key=KEY, max_retries=0, http_client=gateway)


async def _send_chat(client: AsyncOpenAI, content: str = "hi", model: str = "parrot", system: str = "") -> object:
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": content}]
    if system:
        messages.insert(0, {"role": "system", "content": system})
    return await client.chat.completions.create(model=model, messages=messages)


async def test_an_invalid_value_is_a_bad_request_error(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="max_tokens") as caught:
        await client.chat.completions.create(model="parrot", messages=[{"role": "user", "content": "x"}], max_tokens=-1)

    assert (caught.value.param, caught.value.type) == ("max_tokens", "invalid_request_error")


async def test_an_unknown_key_is_an_authentication_error(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.AuthenticationError, match="unknown API key") as caught:
        await _send_chat(client.with_options(api_key="x" * 16))

    assert caught.value.code == "invalid_api_key"


async def test_an_api_key_without_permission_is_a_permission_denied_error(
    client: AsyncOpenAI, gateway: httpx.AsyncClient
) -> None:
    admin = client.with_options(base_url=f"{gateway.base_url}/admin/v1")

    with pytest.raises(openai.PermissionDeniedError, match="not the admin token"):
        await admin.get("/apps", cast_to=object)


async def test_an_unknown_model_is_a_not_found_error(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="unknown model"):
        await _send_chat(client, model="nobody")


async def test_too_many_requests_are_a_rate_limit_error_that_the_client_retries(
    client: AsyncOpenAI, executors: EchoExecutors
) -> None:
    slow = asyncio.create_task(_send_chat(client, "word " * 1000, system="slowly"))
    await until(lambda: executors.running() == 1)

    with pytest.raises(openai.RateLimitError, match="in-flight-per-app=1") as caught:
        await _send_chat(client)
    assert caught.value.response.headers["retry-after"] == "1"

    retrying = asyncio.create_task(_send_chat(client.with_options(max_retries=5)))
    slow.cancel()
    await retrying


async def test_a_body_that_is_too_large_is_a_status_error(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.APIStatusError, match="limit body-mib=1") as caught:
        await _send_chat(client, "x" * 2 * MIB)

    assert caught.value.status_code == 413


async def test_a_failure_is_an_internal_server_error(client: AsyncOpenAI, deploy: Deploy) -> None:
    await deploy(CHAT.replace("parrot", "broken").replace("seconds=len", "fail='torn', seconds=len"))

    with pytest.raises(openai.InternalServerError, match="torn"):
        await _send_chat(client, model="broken")
