"""Requests with fields that Cornserve does not know, which a gateway may be set to serve."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import httpx2 as httpx
import pytest
import pytest_asyncio
from openai.types.responses import ResponseFunctionToolCall

from cornserve.gateway.endpoints.openai.chat import ChatCompletionRequest
from cornserve.gateway.endpoints.unknown_fields import BodyValidation
from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.image_files import image_file
from tests.unit.gateway.running_gateway import GatewayOptions, with_gateway_options
from tests.unit.gateway.sources import CHAT, RELAY

HEADER = "x-cornserve-unknown-fields"
PART = {"type": "text", "text": "hello there", "color": "red"}
BODY = {
    "model": "parrot",
    "banana": {"ripe": True},
    "messages": [{"role": "user", "content": [PART], "mood": "merry"}],
    "Käse: \r\nx": 1,
}
IGNORED = {"banana", "messages[0].content[0].color", "messages[0].mood", "K%C3%A4se%3A%20%0D%0Ax"}


class CountedList(list[Any]):
    """Counts how often Python code reads all of its elements."""

    reads = 0

    def __iter__(self) -> Iterator[Any]:
        self.reads += 1
        return super().__iter__()


@pytest_asyncio.fixture(scope="module", autouse=True, loop_scope="module")
async def parrot(deploy_for_module: Deploy) -> None:
    await deploy_for_module(CHAT.replace("request.messages[-1].content", "''.join(request.messages[-1].texts)"))


async def chat(gateway: httpx.AsyncClient, **fields: Any) -> httpx.Response:
    return await gateway.post("/v1/chat/completions", json=BODY | fields)


async def test_unknown_fields_are_refused_by_default(gateway: httpx.AsyncClient) -> None:
    response = await chat(gateway)

    assert response.status_code == 400
    assert response.json()["error"]["code"] == "unknown_field"
    assert HEADER not in response.headers


async def test_unknown_fields_that_are_null_are_accepted_at_any_depth(gateway: httpx.AsyncClient) -> None:
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "hello", "color": None}], "mood": None},
        ResponseFunctionToolCall(type="function_call", call_id="a", name="find", arguments="{}").model_dump(),
        {"type": "function_call_output", "call_id": "a", "output": "found", "color": None},
        {"role": "user", "content": "hello"},
    ]

    response = await gateway.post("/v1/responses", json={"model": "parrot", "input": items})

    assert response.status_code == 200, response.text
    assert HEADER not in response.headers


def test_a_list_is_searched_once_for_all_of_its_unknown_fields() -> None:
    """The time for a large body must not grow with the number of fields."""
    messages = CountedList({"role": "user", "content": "hello", f"field_{number}": None} for number in range(50))

    body = BodyValidation({}, {"model": "parrot", "messages": messages}, ChatCompletionRequest).body()

    assert len(body.messages) == 50
    assert messages.reads == 1


def test_unknown_fields_of_a_body_are_removed_in_steps() -> None:
    """The event loop can serve other requests in between."""
    parts = [{"type": "text", "text": "hello", f"field_{number}": None} for number in range(5)]
    fields = {"model": "parrot", "messages": [{"role": "user", "content": parts}]}

    validation = BodyValidation({}, fields, ChatCompletionRequest)

    assert [validation.step() is None for _ in range(6)] == [True] * 5 + [False]


@with_gateway_options(GatewayOptions(ignores_unknown_fields=True))
class TestWarn:
    @pytest.mark.parametrize("stream", [False, True])
    async def test_a_header_names_the_fields_that_are_ignored(self, gateway: httpx.AsyncClient, stream: bool) -> None:
        response = await chat(gateway, stream=stream)

        assert response.status_code == 200, response.text
        assert "hello" in response.text
        assert set(response.headers[HEADER].split(", ")) == IGNORED

    async def test_all_fields_of_lists_are_ignored(self, gateway: httpx.AsyncClient) -> None:
        parts = [{"type": "text", "text": "hello ", "color": "red"}, {"type": "text", "text": "there", "size": 1}]

        response = await chat(gateway, messages=[{"role": "user", "content": parts}] * 2)

        assert response.status_code == 200, response.text
        paths = {f"messages[{index}].content[{part}]" for index in (0, 1) for part in (0, 1)}
        expected = {f"{path}.{'size' if path.endswith('[1]') else 'color'}" for path in paths}
        assert set(response.headers[HEADER].split(", ")) == expected | {"banana", "K%C3%A4se%3A%20%0D%0Ax"}

    async def test_items_of_a_response_may_have_unknown_fields(self, gateway: httpx.AsyncClient) -> None:
        parts = [{"type": "input_text", "text": "hello", "color": "red"}] * 2
        items = [{"role": "user", "content": "hi", "mood": "merry"}, {"role": "user", "content": parts, "mood": "sad"}]

        response = await gateway.post("/v1/responses", json={"model": "parrot", "input": items})

        assert response.status_code == 200, response.text
        assert set(response.headers[HEADER].split(", ")) == {
            *("input[0].mood", "input[1].mood", "input[1].content[0].color", "input[1].content[1].color")
        }

    async def test_blocks_of_anthropic_may_have_unknown_fields(
        self, gateway: httpx.AsyncClient, deploy: Deploy
    ) -> None:
        await deploy(RELAY)
        source = {
            "type": "base64",
            "media_type": "image/png",
            "data": base64.b64encode(image_file()).decode(),
            "size": 1,
        }
        image = {"type": "image", "source": source, "color": "red"}
        message = {"role": "user", "content": [{"type": "text", "text": "hello", "color": "red"}, image]}

        response = await gateway.post("/v1/messages", json={"model": "relay", "max_tokens": 7, "messages": [message]})

        assert response.status_code == 200, response.text
        path = "messages[0].content"
        assert set(response.headers[HEADER].split(", ")) == {
            *(f"{path}[0].color", f"{path}[1].color", f"{path}[1].source.size")
        }

    async def test_a_request_without_unknown_fields_has_no_header(self, gateway: httpx.AsyncClient) -> None:
        response = await gateway.post(
            "/v1/chat/completions", json={"model": "parrot", "messages": [{"role": "user", "content": "hello"}]}
        )

        assert response.status_code == 200
        assert HEADER not in response.headers

    @pytest.mark.parametrize(
        ("fields", "param"),
        [({"temperature": -1}, "temperature"), ({"messages": []}, "messages"), ({"model": None}, "model")],
    )
    async def test_invalid_values_are_refused(
        self, gateway: httpx.AsyncClient, fields: dict[str, Any], param: str
    ) -> None:
        response = await chat(gateway, **fields)

        assert response.status_code == 400
        assert response.json()["error"]["param"] == param

    async def test_many_unknown_fields_are_refused(self, gateway: httpx.AsyncClient) -> None:
        response = await chat(gateway, **{f"field_{number}": 0 for number in range(200)})

        assert response.status_code == 400
        assert response.json()["error"]["code"] == "unknown_field"

    async def test_the_same_fields_of_a_list_are_removed_together(self, gateway: httpx.AsyncClient) -> None:
        """A body is validated again for each kind of field, not for each field."""
        parts = [{"type": "text", "text": "hello", "color": "red"}] * 60
        roles = [{"role": role, "content": "hello", "mood": "merry"} for role in ("user", "assistant", "user")]

        response = await chat(gateway, messages=[*roles, {"role": "user", "content": parts}])

        assert response.status_code == 200, response.text
        assert response.headers[HEADER].count("color") >= 20  # The header is cut.
        assert response.headers[HEADER].count("mood") == 3

    async def test_many_unknown_fields_of_a_list_are_refused(self, gateway: httpx.AsyncClient) -> None:
        response = await chat(gateway, messages=[{"role": "user", "content": [PART] * 101}])

        assert response.status_code == 400
        assert response.json()["error"]["code"] == "unknown_field"
