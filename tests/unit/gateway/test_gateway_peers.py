"""The figures of all gateways: those that do not answer are named."""

from __future__ import annotations

import socket

from cornserve.app.live_figures import LIVE_PATH
from cornserve.gateway.live.peers import GatewayPeers
from cornserve.gateway.live.series import GatewaySteps
from cornserve.gateway.observe.app_history import VALUES
from tests.unit.gateway.answering_server import answering_server

OWN = GatewaySteps(steps=[(1, [1] * VALUES)])


def unused_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"


async def test_a_single_gateway_answers_itself() -> None:
    found, gateways = await GatewayPeers(None, "token").read(LIVE_PATH, {}, GatewaySteps, lambda: OWN)

    assert (found, gateways.read, gateways.missing) == ([OWN], 1, [])


async def test_gateways_that_do_not_answer_are_missing() -> None:
    dead = unused_address()
    other = GatewaySteps(steps=[(2, [3] * VALUES)])
    async with (
        answering_server(other.model_dump_json().encode()) as (good, _),
        answering_server(b"<html>") as (bad, _),
        answering_server(b'{"steps": [[2, [3]]]}') as (earlier, _),
    ):

        async def find() -> list[str]:
            return [good, bad, earlier, f"http://{dead}"]

        found, gateways = await GatewayPeers(find, "token").read(LIVE_PATH, {}, GatewaySteps, lambda: OWN)

    assert found == [other]
    assert gateways.read == 1
    missing = {each.gateway for each in gateways.missing}
    assert missing == {bad.removeprefix("http://"), earlier.removeprefix("http://"), dead}
    assert all(missing.error for missing in gateways.missing)


async def test_a_gateway_with_a_huge_answer_or_a_redirect_is_missing() -> None:
    async with (
        answering_server(*[b" " * (1 << 20)] * 33) as (huge, _),
        answering_server(b'{"steps": []}', status=302) as (moved, _),
    ):

        async def find() -> list[str]:
            return [huge, moved]

        found, gateways = await GatewayPeers(find, "token").read(LIVE_PATH, {}, GatewaySteps, lambda: OWN)

    assert found == []
    errors = {missing.gateway: missing.error for missing in gateways.missing}
    assert "more than 33554432 bytes" in errors[huge.removeprefix("http://")]
    assert errors[moved.removeprefix("http://")] == "status 302"


async def test_without_their_addresses_the_others_are_missing() -> None:
    async def fail() -> list[str]:
        raise OSError("no API server")

    found, gateways = await GatewayPeers(fail, "token").read(LIVE_PATH, {}, GatewaySteps, lambda: OWN)

    assert found == [OWN]
    assert [missing.error for missing in gateways.missing] == ["no API server"]
