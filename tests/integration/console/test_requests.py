"""Lists of requests, and the timeline of each."""

from __future__ import annotations

import re
from urllib.parse import quote

import httpx2 as httpx
import pytest
from playwright.sync_api import expect

from cornserve.client import Client, ClientError
from tests.integration.cli.cli_instance import CliInstance
from tests.integration.console.console_pages import TOKEN, OpenConsole


@pytest.mark.slow
def test_the_stages_of_a_request_have_phases(console: OpenConsole, instance: CliInstance) -> None:
    with Client(instance.url) as client:
        client.complete("chatter", [{"role": "user", "content": "one two"}])
    page = console.show("apps/chatter/requests")
    page.get_by_role("region", name="Requests").get_by_role("link").first.click()

    stage = page.get_by_role("list", name="Stages").get_by_role("listitem").filter(has_text="EchoTask")
    expect(stage).to_contain_text("compute")
    expect(stage).to_contain_text("streamed output")


@pytest.mark.slow
def test_failed_and_slow_requests_have_lists(console: OpenConsole, instance: CliInstance) -> None:
    with Client(instance.url) as client:
        client.complete("chatter", [{"role": "user", "content": "hello"}])
        with pytest.raises(ClientError):
            client.complete("chatter", [{"role": "user", "content": "fail"}])
    page = console.show("apps/chatter/requests")
    rows = page.get_by_role("region", name="Requests").locator("tbody tr")

    page.get_by_label("failed").check()
    expect(rows.first.locator(".bad")).to_have_text("500")
    page.get_by_label("slow").check()
    expect(rows.first).to_be_visible()
    expect(rows.locator(".bad")).to_have_count(0)


@pytest.mark.slow
@pytest.mark.parametrize("id", [".", "..", "../apps/chatter", "a//b", "/", "%2e%2e", "x" * 200])
def test_an_unknown_id_of_a_request_is_refused(console: OpenConsole, id: str) -> None:
    page = console.show(f"requests/{quote(id, safe='')}")

    expect(page.get_by_role("alert")).to_contain_text(re.compile("the request is unknown|id: must"))
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Request {id}")


@pytest.mark.slow
def test_a_request_has_a_timeline_by_an_id_that_looks_like_a_path(console: OpenConsole, instance: CliInstance) -> None:
    body = {"model": "chatter", "messages": [{"role": "user", "content": "hello"}]}
    headers = {"authorization": f"Bearer {TOKEN}", "x-request-id": "../of/the/client"}
    httpx.post(f"{instance.url}/v1/chat/completions", json=body, headers=headers, timeout=60, trust_env=False)
    page = console.show("requests")
    page.get_by_role("region", name="Requests").get_by_role("link", name="../of/the/client").first.click()

    expect(page.get_by_role("list", name="Stages").get_by_role("listitem").first).to_be_visible()
