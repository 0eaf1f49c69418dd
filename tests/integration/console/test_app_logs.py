"""The logs and events of an app."""

from __future__ import annotations

from datetime import datetime, timedelta

import httpx2 as httpx
import pytest
from playwright.sync_api import expect

from tests.integration.cli.cli_instance import CliInstance
from tests.integration.console.console_pages import TOKEN, OpenConsole


@pytest.mark.slow
def test_logs_are_followed(console: OpenConsole, instance: CliInstance) -> None:
    page = console.show("apps/chatter/logs")
    expect(page.get_by_role("heading", name="Logs")).to_be_visible()
    page.evaluate("window.loaded = 1")
    body = {"model": "chatter", "messages": [{"role": "user", "content": "hello"}]}
    headers = {"authorization": f"Bearer {TOKEN}", "x-request-id": "request-of-the-log"}
    httpx.post(f"{instance.url}/v1/chat/completions", json=body, headers=headers, timeout=60, trust_env=False)

    replicas = page.get_by_label("Replica")
    replicas.select_option(replicas.locator("option", has_text="gateway").inner_text())
    page.get_by_role("searchbox").fill("request-of-the-log")
    expect(page.get_by_role("log")).to_contain_text("log line")
    assert page.evaluate("window.loaded") == 1


@pytest.mark.slow
def test_times_of_other_days_have_their_date(console: OpenConsole) -> None:
    midnight = datetime(2026, 3, 4, 0, 5).astimezone()
    times = None, (midnight - timedelta(days=1)).isoformat(), midnight.isoformat()
    event = {"type": "Normal", "reason": "Ready", "object": "a", "message": "b", "count": 1}
    document = {"events": [event | {"time": time} for time in times]}
    console.page.clock.set_fixed_time(midnight + timedelta(hours=12))
    console.page.route("**/history", lambda route: route.fulfill(json=document))

    shown = console.show("apps/chatter/logs").locator(".events time")
    expect(shown).to_have_text(["00:05:00", "Mar 3, 2026, 00:05:00", "–"])
