"""The figures and the lines of all gateways: those that do not answer are named."""

from __future__ import annotations

import pytest

from cornserve import gateway_reader
from cornserve.app.live_figures import LIVE_PATH
from cornserve.gateway.live.peers import GatewayPeers
from cornserve.gateway.live.series import GatewaySteps
from cornserve.gateway.observe.app_history import VALUES
from cornserve.gateway.observe.gateway_logs import GatewayLogs
from cornserve.gateway_reader import KnownGateways
from tests.free_ports import free_port
from tests.unit.gateway.answering_server import answering_server

OWN = GatewaySteps(steps=[(1, [1] * VALUES)])


def unused_address() -> str:
    return f"127.0.0.1:{free_port()}"


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


async def test_a_gateway_with_a_huge_answer_or_a_redirect_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cornserve.gateway.live.peers.RESPONSE_SECONDS", 60)
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


async def test_lines_of_an_app_are_those_of_all_gateways_and_a_gateway_that_cannot_be_read_is_named() -> None:
    dead = unused_address()
    async with answering_server(b'["PRINT: corn"]') as (good, _), answering_server(b"[]") as (quiet, _):

        async def find() -> list[str]:
            return [good, quiet, f"http://{dead}"]

        lines, error = await GatewayLogs(find, "token").last("chat", 10)

    assert (lines.id, lines.lines) == (f"gateway {good.removeprefix('http://')}", ["PRINT: corn"])
    assert (error.id, error.lines) == (f"gateway {dead}", [])
    assert error.error is not None


async def test_the_lines_of_one_gateway_are_read_alone() -> None:
    async with answering_server(b'["PRINT: corn"]') as (good, _), answering_server(b"[]") as (other, received):

        async def find() -> list[str]:
            return [good, other]

        id = f"gateway {good.removeprefix('http://')}"
        [log] = await GatewayLogs(find, "token").last("chat", 10, id)
        without_gateway = await GatewayLogs(find, "token").last("chat", 10, "llm-1")

    assert (log.id, log.lines) == (id, ["PRINT: corn"])
    assert (without_gateway, len(received)) == ([], 0)


async def test_the_addresses_of_gateways_are_kept_for_some_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([["http://b", "http://a"], ["http://c"]])

    async def find() -> list[str]:
        return next(answers)

    gateways = KnownGateways(find)

    assert [await gateways(), await gateways()] == [["http://a", "http://b"]] * 2
    monkeypatch.setattr(gateway_reader, "KNOWN_SECONDS", 0.0)
    assert await gateways() == ["http://c"]
