"""The controller sums the arrivals of all gateways, whatever happens to some of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack

import pytest

from cornserve.app.arrivals import ARRIVALS_PATH
from cornserve.control.adaptation.arrival_reader import ArrivalReader, Arrivals, Counts
from tests.unit.http_server import StubServer, json_response, serving

CALL = f"GET {ARRIVALS_PATH}"


class Gateways:
    def __init__(self, *servers: StubServer) -> None:
        self.servers = servers
        self.urls = [server.url for server in servers]
        self.error: OSError | None = None

    async def find(self) -> list[str]:
        if self.error is not None:
            raise self.error
        return self.urls

    def answer(self, number: int, apps: Counts, *, process: str = "first", seconds: float = 1000.0) -> None:
        answer = {"process": f"{process} of {number}", "seconds": seconds, "apps": apps}
        self.servers[number].on(CALL, json_response(answer))

    def fail(self, number: int) -> None:
        self.servers[number].on(CALL, json_response({}, 500))


@pytest.fixture
def gateways() -> Iterator[Gateways]:
    with ExitStack() as stack:
        yield Gateways(*[stack.enter_context(serving()) for _ in range(2)])


@pytest.fixture
async def reader(gateways: Gateways) -> AsyncIterator[ArrivalReader]:
    """Returns a reader that has read the first counts."""
    gateways.answer(0, {"caption": {"text": 1000, "images": 10}})
    gateways.answer(1, {"caption": {"text": 500}})
    reader = ArrivalReader(gateways.find, "the-token")
    assert await reader.read(0) == Arrivals({}, is_complete=False)
    yield reader
    await reader.close()


async def test_the_growth_of_all_gateways_is_summed(gateways: Gateways, reader: ArrivalReader) -> None:
    gateways.answer(0, {"caption": {"text": 1003, "images": 10}})
    gateways.answer(1, {"caption": {"text": 504, "images": 2}, "chat": {"text": 7}})

    expected = {"caption": {"text": 7, "images": 2}, "chat": {"text": 7}}
    assert await reader.read(5) == Arrivals(expected, is_complete=True)
    assert await reader.read(10) == Arrivals({"caption": {"text": 0, "images": 0}, "chat": {"text": 0}}, True)
    assert gateways.servers[0].headers[0]["authorization"] == "Bearer the-token"


async def test_loads_of_executor_groups_are_counted_by_app(gateways: Gateways, reader: ArrivalReader) -> None:
    def answer(tokens: Counts) -> None:
        document = {"process": "first of 0", "seconds": 1000, "apps": {}, "invocations": {}, "tokens": tokens}
        gateways.servers[0].on(CALL, json_response(document))

    answer({"a": {"llm-1": 100}, "b": {"llm-1": 10}})
    await reader.read(5)
    answer({"a": {"llm-1": 150, "llm-2": 7}, "b": {"llm-1": 30}})

    assert (await reader.read(10)).tokens == {"a": {"llm-1": 50, "llm-2": 7}, "b": {"llm-1": 20}}
    answer({"b": {"llm-1": 40}})
    assert (await reader.read(15)).tokens == {"b": {"llm-1": 10}}
    answer({"b": {"llm-1": 2, "llm-2": 5}})
    await reader.read(20)
    answer({"b": {"llm-1": 1, "llm-2": 8}})  # a late invocation of a removed group
    assert (await reader.read(25)).tokens == {"b": {"llm-1": 1, "llm-2": 3}}


async def test_invocations_of_each_type_are_summed(gateways: Gateways, reader: ArrivalReader) -> None:
    def answer(counts: Counts) -> None:
        document = {"process": "first of 0", "seconds": 1000, "apps": {}, "type_invocations": {"chat": counts}}
        gateways.servers[0].on(CALL, json_response(document))

    answer({"text": {"llm": 100}})
    await reader.read(5)
    answer({"text": {"llm": 103, "draw": 2}, "images": {"llm": 1}})

    expected = {"chat": {"text": {"llm": 3, "draw": 2}, "images": {"llm": 1}}}
    assert (await reader.read(10)).type_invocations == expected


async def test_requests_that_have_met_and_missed_targets_are_summed(gateways: Gateways, reader: ArrivalReader) -> None:
    for number, (met, missed) in enumerate([(5, 1), (3, 2)]):
        answer = {"met": {"chat": {"ttft": met}}, "missed": {"chat": {"ttft": missed, "e2e": 1}}}
        gateways.servers[number].on(
            CALL, json_response({"process": f"first of {number}", "seconds": 1000, "apps": {}} | answer)
        )

    arrivals = await reader.read(5)

    assert arrivals.met == {"chat": {"ttft": 8}}
    assert arrivals.missed == {"chat": {"ttft": 3, "e2e": 2}}


async def test_a_restarted_gateway_counts_from_zero(gateways: Gateways, reader: ArrivalReader) -> None:
    gateways.answer(0, {"caption": {"text": 1200}}, process="second", seconds=3)

    assert await reader.read(5) == Arrivals({"caption": {"text": 1200}}, is_complete=True)


async def test_the_counts_of_a_gateway_that_was_not_known_are_no_arrivals(
    gateways: Gateways, reader: ArrivalReader
) -> None:
    gateways.answer(1, {"caption": {"text": 100_000}}, process="unknown")

    assert await reader.read(5) == Arrivals({"caption": {"text": 0, "images": 0}}, is_complete=False)


async def test_a_gateway_that_does_not_answer_is_left_out_and_logged_once(
    gateways: Gateways, reader: ArrivalReader, caplog: pytest.LogCaptureFixture
) -> None:
    gateways.answer(0, {"caption": {"text": 1003, "images": 10}})
    gateways.fail(1)

    first, second = await reader.read(5), await reader.read(10)
    gateways.answer(1, {"caption": {"text": 900}})
    back, later = await reader.read(15), await reader.read(20)

    # The arrivals since its last answer would look like a burst.
    assert [each.is_complete for each in (first, second, back, later)] == [False, False, False, True]
    assert [each.apps["caption"]["text"] for each in (first, second, back, later)] == [3, 0, 0, 0]
    assert [record.message for record in caplog.records if gateways.urls[1] in record.message] == [caplog.messages[0]]
    assert "does not count arrivals" in caplog.messages[0]


async def test_an_app_that_a_gateway_has_removed_is_counted_from_zero(
    gateways: Gateways, reader: ArrivalReader
) -> None:
    gateways.answer(0, {"caption": {"text": 4}})

    assert (await reader.read(5)).apps["caption"] == {"text": 4}


@pytest.mark.parametrize("body", [{"process": 1}, {"apps": {}}, [], {"process": "a", "seconds": 1, "apps": {"a": 1}}])
async def test_an_answer_in_another_format_is_left_out(gateways: Gateways, reader: ArrivalReader, body: object) -> None:
    gateways.servers[1].on(CALL, json_response(body))

    assert not (await reader.read(5)).is_complete


async def test_without_the_list_of_gateways_nothing_is_known(gateways: Gateways, reader: ArrivalReader) -> None:
    gateways.error = PermissionError("the instance file cannot be read")

    assert await reader.read(5) == Arrivals({}, is_complete=False)
