"""The console behind a proxy, below a prefix of its path."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, expect

from tests.ingress_proxy import PREFIX, ingress_proxy, rewriting_ingress
from tests.integration.cli.cli_instance import CliInstance
from tests.integration.console.console_pages import TOKEN, PageProblems, send


@pytest.mark.slow
def test_a_proxy_serves_the_page_below_a_prefix(context: BrowserContext, instance: CliInstance, tmp_path: Path) -> None:
    with ingress_proxy(rewriting_ingress(f"{PREFIX}(/|$)(.*)"), instance.url, tmp_path) as address:
        url = f"{address}{PREFIX}"
        page, problems = context.new_page(), PageProblems(url, [])
        problems.watch(page)
        page.goto(f"{url}/console")
        page.get_by_label("Admin token").fill(TOKEN)
        page.keyboard.press("Enter")
        page.get_by_role("row", name="chatter").get_by_role("link").click()
        expect(page.locator("[data-group]")).to_have_count(1)
        page.get_by_role("navigation", name="Views of chatter").get_by_role("link", name="Playground").click()
        send(page, "hello")
        expect(page.locator(".answer")).to_contain_text("hello")
        page.get_by_text("The last request as code").click()
        expect(page.get_by_label("curl", exact=True)).to_contain_text(f"{url}/v1/chat/completions")
        page.close()

    assert problems.found == []
    assert [cookie["path"] for cookie in context.cookies()] == [f"{PREFIX}/console"]
