"""Figures of more than an hour, from Prometheus. `tests/integration/console/test_instances.py` runs a real one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import httpx2 as httpx
import pytest

from cornserve.gateway.live import prometheus
from cornserve.gateway.live.prometheus import PrometheusError, PrometheusServer, PrometheusSettingError
from tests.unit.gateway.answering_server import answering_server
from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.running_gateway import GatewayOptions, with_gateway_options
from tests.unit.gateway.sources import ECHO

NOBODY = "http://127.0.0.1:9"
EMPTY = '{"status": "success", "data": {"resultType": "matrix", "result": []}}'


@asynccontextmanager
async def answering(body: str, status: int = 200) -> AsyncIterator[tuple[PrometheusServer, Sequence[str]]]:
    """A server that answers every query with the body, and the received requests."""
    async with answering_server(body.encode(), status=status) as (url, received):
        yield PrometheusServer.parse(url), received


class TestGateway:
    async def test_without_prometheus_more_than_an_hour_is_refused(
        self, gateway: httpx.AsyncClient, deploy: Deploy
    ) -> None:
        await deploy(ECHO)

        hour = await gateway.get("/admin/v1/apps/echo/series")
        day = await gateway.get("/admin/v1/apps/echo/series", params={"hours": 24})

        assert hour.json()["longest_hours"] == 1
        assert (day.status_code, day.json()["error"]["code"]) == (400, "no_prometheus")

    @with_gateway_options(GatewayOptions(prometheus=PrometheusServer.parse(NOBODY)))
    async def test_a_prometheus_that_does_not_answer_is_an_error(
        self, gateway: httpx.AsyncClient, deploy: Deploy
    ) -> None:
        await deploy(ECHO)

        hour = await gateway.get("/admin/v1/apps/echo/series")
        day = await gateway.get("/admin/v1/apps/echo/series", params={"hours": 24})

        assert hour.json()["longest_hours"] == 744
        assert (day.status_code, day.json()["error"]["code"]) == (503, "prometheus_unavailable")
        assert (await gateway.get("/admin/v1/apps/none/series", params={"hours": 24})).status_code == 404

    @pytest.mark.parametrize("hours", ["0", "-1", "745", "nan", "inf", "x"])
    async def test_other_numbers_of_hours_are_refused(self, gateway: httpx.AsyncClient, hours: str) -> None:
        response = await gateway.get("/admin/v1/apps/echo/series", params={"hours": hours})

        assert response.status_code in (400, 422)


class TestAnswers:
    async def test_times_without_data_have_no_figures(self) -> None:
        now = 1_800_000_000
        values = [[now, "0.5"], [now - 90, "NaN"], [now - 180, "+Inf"], [now - 270, "x"], [now + 1, "7"]]
        body = EMPTY.replace("[]", f'[{{"metric": {{}}, "values": {values}}}]'.replace("'", '"'))
        async with answering(body) as (server, _):
            series = await server.series("app", ["llm-1"], 6, now + 0.5)

        assert (series.step_seconds, len(series.times), series.times[-1]) == (90, 240, now)
        assert series.requests_per_second[-4:] == [None, None, None, 0.5]
        assert series.ttft_p90 == series.requests_per_second

    async def test_names_cannot_change_a_query(self) -> None:
        async with answering(EMPTY) as (server, received):
            labeled = PrometheusServer.parse(server.url, ["namespace=team"])
            await labeled.series('x"} or vector(1) #\n', ["a|b", "c"], 24, 1e9)

        queries = [httpx.QueryParams(each)["query"] for each in received]
        assert any('requests_running{app="x\\"} or vector(1) #\\n",namespace="team"}' in query for query in queries)
        assert any('group=~"a\\\\|b|c",namespace="team",state="ready"' in query for query in queries)

    @pytest.mark.parametrize(
        "body", ["", "<html>", "[]", '{"status": "error"}', EMPTY.replace("[]", "[1]"), "x" * 20_000]
    )
    async def test_other_answers_are_errors(self, body: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(prometheus, "MAX_BYTES", 10_000)
        async with answering(body) as (server, _):
            with pytest.raises(PrometheusError, match=r"has not answered like Prometheus|has more than 10000 bytes"):
                await server.series("app", [], 24, 1e9)

    async def test_a_refused_query_is_an_error(self) -> None:
        async with answering(EMPTY, 503) as (server, _):
            with pytest.raises(PrometheusError, match="status 503"):
                await server.series("app", [], 24, 1e9)


@pytest.mark.parametrize(
    "url", ["", "prometheus:9090", "ftp://x", "http://", "http://x:99999", "http://x?y", "file:///etc"]
)
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(PrometheusSettingError, match="is not an address"):
        PrometheusServer.parse(url)


@pytest.mark.parametrize("label", ["", "x", "=x", "1=x", "a-b=c"])
def test_other_labels_are_refused(label: str) -> None:
    with pytest.raises(PrometheusSettingError, match="is not a label"):
        PrometheusServer.parse("http://x", [label])
