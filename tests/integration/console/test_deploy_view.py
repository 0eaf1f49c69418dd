"""The view that deploys apps."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from cornserve.client import Client
from tests.integration.cli.cli_instance import CliInstance
from tests.integration.console.console_pages import OpenConsole


@pytest.mark.slow
def test_an_app_is_deployed_restarted_and_deleted(console: OpenConsole, instance: CliInstance) -> None:
    page = console.show("deploy")

    page.get_by_label("the source of an app").check()
    page.get_by_label("Name of the app").fill("fleeting")
    page.get_by_label("Source: ").fill(
        "from cornserve import App\nfrom cornserve_echo import EchoTask\napp = App(name='fleeting', paths=[EchoTask()])"
    )
    page.get_by_role("button", name="Deploy…").click()
    page.get_by_role("dialog").get_by_role("button", name="Deploy").click()
    expect(page.get_by_role("heading", name="fleeting")).to_be_visible()
    page.get_by_role("button", name="Restart…").click()
    page.get_by_role("dialog").get_by_role("button", name="Restart").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    with Client(instance.url) as client:
        assert client.app("fleeting").generation == 2
    page.get_by_role("button", name="Delete…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("button", name="Delete")).to_be_disabled()
    dialog.get_by_label("to confirm").fill("fleeting")
    dialog.get_by_role("button", name="Delete").click()

    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    expect(page.get_by_role("row", name="fleeting")).to_have_count(0)
