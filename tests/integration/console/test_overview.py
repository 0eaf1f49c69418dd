"""The overview of all apps."""

from __future__ import annotations

import json
import subprocess
import sys
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import pytest
from playwright.sync_api import expect

from cornserve.client import Client
from tests.integration.cli.cli_instance import CliInstance
from tests.integration.console.console_pages import OpenConsole, errors_of_requests
from tests.waiting import wait_until


@pytest.mark.slow
def test_the_overview_has_the_figures_of_the_status_and_of_the_metrics(
    console: OpenConsole, instance: CliInstance
) -> None:
    with Client(instance.url) as client:
        ready = sum(group.ready for group in client.app("chatter").status.groups)
    row = console.show().get_by_role("row", name="chatter")

    expect(row.locator('[data-figure="ready"]')).to_have_text(f"{ready}/2")
    expect(row.locator('[data-figure="errors"]')).to_have_text(errors_of_requests(instance, "chatter"))


@pytest.mark.slow
def test_the_overview_has_the_figures_that_the_command_line_watches(
    console: OpenConsole, instance: CliInstance
) -> None:
    with Client(instance.url) as client:
        client.complete("chatter", [{"role": "user", "content": "hello"}])
    row = console.show().get_by_role("row", name="chatter")
    command = [sys.executable, "-m", "cornserve.cli", "status", "--watch", "--json", "--url", instance.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as watching:
        assert watching.stdout is not None
        lines = iter(watching.stdout)

        def is_shown() -> bool:
            figures = next(app for app in json.loads(next(lines))["apps"] if app["name"] == "chatter")
            shown: list[str] = row.get_by_role("cell").all_inner_texts()
            return shown == _cells(figures)

        try:
            wait_until(is_shown)
        finally:
            watching.terminate()


def _cells(app: dict[str, Any]) -> list[str]:
    """Returns the row of an app without targets in the overview."""
    return [
        app["phase"],
        f"{app['ready']}/{app['wanted']}",
        _number(app["gpus"]),
        f"{_number(app['requests_per_second'])}/s",
        _number(app["running"]),
        _median_and_tail(app["ttft_seconds"]),
        _median_and_tail(app["tbt_seconds"]),
        f"{_number(app['generation_tokens_per_second'])}/s",
        "",
        f"{_number(app['errors_total'])} of {_number(app['requests_total'])}",
    ]


def _number(value: float, digits: int = 2) -> str:
    """Rounds half away from zero, as `Intl.NumberFormat` does."""
    unit = Decimal(1).scaleb(0 if value >= 100 else -digits)
    text = f"{Decimal(str(value)).quantize(unit, ROUND_HALF_UP):,f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _median_and_tail(percentiles: dict[str, float] | None) -> str:
    if percentiles is None:
        return "–"
    return " / ".join(
        f"{_number(1000 * value, 1 if value < 0.01 else 0)} ms" if value < 1 else f"{_number(value)} s"
        for value in (percentiles["p50"], percentiles["p99"])
    )
