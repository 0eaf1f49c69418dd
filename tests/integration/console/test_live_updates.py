"""Streams of changes, which windows share."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import BrowserContext, expect

from cornserve.client import Client
from tests.integration.cli.cli_instance import CliInstance
from tests.integration.console.console_pages import WITHOUT_SHARED_WORKERS, OpenConsole, errors_of_requests


@pytest.mark.slow
def test_more_windows_than_connections_are_live(
    console: OpenConsole, context: BrowserContext, instance: CliInstance
) -> None:
    apps = ["hummer", "scribe", "sketcher", "speaking-parrot", "tape", "chatter"]
    pages = {view: context.new_page() for view in ["", *(f"apps/{app}" for app in apps)]}
    for view, page in pages.items():
        page.goto(f"{console.url}/console/#/{view}")
        page.evaluate("window.loaded = 1")
    for app in apps:
        expect(pages[f"apps/{app}"].locator("[data-group]")).to_have_count(1)
    with Client(instance.url) as client:
        client.complete("chatter", [{"role": "user", "content": "hello"}])
    errors = errors_of_requests(instance, "chatter")

    expect(pages["apps/chatter"].locator(".figure", has_text="Errors")).to_contain_text(errors)
    row = pages[""].get_by_role("row", name="chatter")
    expect(row.locator('[data-figure="errors"]')).to_have_text(errors)
    assert all(page.evaluate("window.loaded") == 1 for page in pages.values())


@pytest.mark.slow
@pytest.mark.usefixtures("demo_apps")
def test_the_demo_has_one_stream(console: OpenConsole) -> None:
    console.page.add_init_script(WITHOUT_SHARED_WORKERS)
    streams: list[str] = []
    console.page.on("request", lambda request: streams.append(request.url) if "/events" in request.url else None)
    page = console.show("demo")

    expect(page.get_by_role("region", name=re.compile("Executors of"))).to_have_count(3)
    assert len(streams) == 1
