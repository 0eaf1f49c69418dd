"""The figures of apps over more than an hour, from the Prometheus server that scrapes the instance."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from json import dumps
from string import Template
from typing import TYPE_CHECKING, Any, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ValidationError

from cornserve.app.overview import AppSeries, ReadGateways
from cornserve.concurrency import gather_all
from cornserve.exception_text import exception_text
from cornserve.http_reader import read_body

if TYPE_CHECKING:  # It takes long to import, and most instances have no Prometheus.
    from aiohttp import ClientSession

LONGEST_HOURS: Final = 31 * 24

STEPS: Final = 240

MIN_WINDOW_SECONDS: Final = 240
"""The time over which rates are computed. It has several scrapes."""

RESPONSE_SECONDS: Final = 5.0

MAX_BYTES: Final = 1 << 20

_LABEL = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)=(?P<value>[^\x00-\x1f]{1,200})")

_QUERIES: Final = (
    {
        "requests_per_second": "sum(rate(cornserve_gateway_requests_total{$app}[$window]))",
        "errors_per_second": (
            'sum(rate(cornserve_gateway_requests_total{$app,status=~"5.."}[$window]))'
            " or 0 * sum(rate(cornserve_gateway_requests_total{$app}[$window]))"
        ),
        "generation_tokens_per_second": "sum(rate(cornserve_gateway_generation_tokens_total{$app}[$window]))",
        "running": "sum(cornserve_gateway_requests_running{$app})",
    }
    | {
        # The controller has a series for each state that a replica is in.
        state: (
            f'sum(cornserve_controller_replicas{{$groups,state="{state}"}})'
            " or 0 * sum(cornserve_controller_replicas{$groups})"
        )
        for state in ("ready", "starting", "draining", "failed")
    }
    | {
        f"{name}_p{percent}": (
            f"histogram_quantile(0.{percent}, sum by (le) (rate(cornserve_gateway_{metric}_bucket{{$app}}[$window])))"
        )
        for name, metric in (
            ("ttft", "time_to_first_token_seconds"),
            ("tbt", "inter_token_latency_seconds"),
            ("e2e", "e2e_request_latency_seconds"),
        )
        for percent in (50, 90)
    }
)
"""PromQL by the figure of `AppSeries`."""


class PrometheusSettingError(ValueError):
    """The address of a Prometheus server or a label is invalid. The message is for users."""


class PrometheusError(Exception):
    """Prometheus does not answer the query. The message is for users."""


class _MatrixRow(BaseModel):
    values: list[tuple[float, str]]


class _Matrix(BaseModel):
    result: list[_MatrixRow]


class _Answer(BaseModel):
    """A response of `/api/v1/query_range`."""

    status: Literal["success"]
    data: _Matrix


@dataclass(frozen=True, slots=True)
class PrometheusServer:
    """A server that scrapes the metrics of the instance.

    Args:
        url: the address below which `/api/v1` is.
        labels: those that all metrics of the instance have, if the server also scrapes others.
    """

    url: str
    labels: Sequence[tuple[str, str]] = ()

    @classmethod
    def parse(cls, url: str, labels: Sequence[str] = ()) -> Self:
        """Raises `PrometheusSettingError`."""
        if not _is_address(url):
            raise PrometheusSettingError(f"{url!r} is not an address: give http://HOST:PORT, or https://HOST/PATH")
        found = [_LABEL.fullmatch(label) for label in labels]
        if None in found:
            raise PrometheusSettingError(f"{labels[found.index(None)]!r} is not a label: give NAME=VALUE")
        return cls(url.rstrip("/"), tuple((label["name"], label["value"]) for label in found if label))

    async def series(self, app: str, groups: Sequence[str], hours: float, now: float) -> AppSeries:
        """Returns the last hours of an app in `STEPS` steps. Raises `PrometheusError`.

        Args:
            groups: the executor groups of the app, whose replicas are counted.
            now: seconds since 1970.
        """
        from aiohttp import ClientSession, ClientTimeout

        step = math.ceil(hours * 3600 / STEPS)
        times = range(int(now) - (STEPS - 1) * step, int(now) + 1, step)
        matchers = {
            "app": _matchers(("app", "=", app), *((name, "=", value) for name, value in self.labels)),
            "groups": _matchers(
                ("group", "=~", "|".join(map(re.escape, groups))), *((name, "=", value) for name, value in self.labels)
            ),
            "window": f"{max(step, MIN_WINDOW_SECONDS)}s",
        }
        ranges = {"start": str(times[0]), "end": str(times[-1]), "step": str(step)}
        async with ClientSession(timeout=ClientTimeout(total=RESPONSE_SECONDS)) as session:
            queries = (Template(query).substitute(matchers) for query in _QUERIES.values())
            answers = await gather_all(self._query(session, {"query": query, **ranges}) for query in queries)
        columns: dict[str, Any] = {
            figure: [found.get(time) for time in times] for figure, found in zip(_QUERIES, answers, strict=True)
        }
        return AppSeries(
            step_seconds=step, longest_hours=LONGEST_HOURS, gateways=ReadGateways(), times=[*times], **columns
        )

    async def _query(self, session: ClientSession, form: Mapping[str, str]) -> dict[int, float]:
        """Returns the values of a query by their times. Raises `PrometheusError`."""
        from aiohttp import ClientError

        try:
            async with session.post(f"{self.url}/api/v1/query_range", data=form, allow_redirects=False) as response:
                if response.status != 200:
                    raise PrometheusError(f"Prometheus has answered with status {response.status}")
                answer = _Answer.model_validate_json(await read_body(response, MAX_BYTES))
        except ValidationError as error:
            raise PrometheusError("the server has not answered like Prometheus") from error
        except (ClientError, OSError, ValueError) as error:  # A timeout is an OSError.
            raise PrometheusError(f"Prometheus does not answer: {exception_text(error)}") from error
        values = {round(time): _number(value) for row in answer.data.result for time, value in row.values}
        return {time: value for time, value in values.items() if math.isfinite(value)}


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        is_server = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return is_server and not parts.query and not parts.fragment


def _number(text: str) -> float:
    """Returns a value of Prometheus, such as `NaN`. Anything else is not a number either."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def _matchers(*matchers: tuple[str, str, str]) -> str:
    return ",".join(f"{name}{operator}{dumps(value, ensure_ascii=False)}" for name, operator, value in matchers)
