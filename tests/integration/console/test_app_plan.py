"""The plan of an app: its cells, its costs and proposals of other cells."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from cornserve.app.settings import AdaptationSettings, AppPolicies
from cornserve.app.spec import AppSource, AppSpec
from cornserve.client import Client
from tests.integration.cli.cli_instance import CliInstance
from tests.integration.console.console_apps import PLANNED
from tests.integration.console.console_pages import OpenConsole, accessibility_violations, requests_to
from tests.unit.app.plans import cell, plan


@pytest.mark.slow
def test_a_plan_has_its_promise_its_cells_and_its_costs(console: OpenConsole, instance: CliInstance) -> None:
    cells = cell(1, {"EL": 1}, count=1, rate=4.0), cell(2, {"EL": 2}, rate=10.0)
    spec = AppSpec(source=AppSource(inline=PLANNED), plan=plan(*cells))
    with Client(instance.url) as client:
        client.deploy(spec, name="planned")
        for number in range(4):
            client.invoke("planned", {"text": "a", "images": number % 2})
    page = console.show("apps/planned")
    running = page.get_by_role("region", name="Cells").get_by_role("row")

    expect(running).to_have_count(2)
    expect(running.nth(1)).to_contain_text("4/s$2.5/h1/1")
    for figure in ("Promised4/s", "GPUs1", "Cost$2.5/h"):
        expect(page.locator(".figure", has_text=figure).last).to_be_visible()
    expect(page.get_by_text(re.compile(r"EL \(1 in a cell of 1 GPU\): .+ of its time is used"))).to_be_visible()
    assert accessibility_violations(page) == []
    shares = page.get_by_role("region", name="Shares of the paths")
    expect(shares.get_by_role("row", name="images: path 0 of cell")).to_contain_text("100 %")
    page.get_by_role("button", name="Scale…").click()
    page.get_by_role("spinbutton").fill("0")
    page.get_by_role("dialog").get_by_role("button", name="Scale").click()
    expect(page.locator("input:invalid")).to_have_count(1)
    page.get_by_role("spinbutton").fill("8")
    page.get_by_role("dialog").get_by_role("button", name="Scale").click()

    expect(running.nth(1)).to_contain_text("10/s$5/h2/2")
    with Client(instance.url) as client:
        client.delete("planned")


@pytest.mark.slow
def test_a_proposal_has_its_benefit_and_its_cost_and_is_approved(console: OpenConsole, instance: CliInstance) -> None:
    cells = cell(1, {"EL": 1}, count=1, rate=0.5), cell(2, {"EL": 2}, rate=2.0)
    settings = AdaptationSettings(approval=True, max_rate=2.0, window_seconds=2, dwell_seconds=0)
    policies = AppPolicies(adaptation=settings)
    spec = AppSpec(source=AppSource(inline=PLANNED), plan=plan(*cells), policies=policies)
    with Client(instance.url) as client:
        client.deploy(spec, name="planned")
        page = console.show("apps/planned")
        proposal = page.get_by_role("region", name="Proposal: other cells")
        with requests_to("planned", instance):  # Without them, the proposal is withdrawn.
            for figure in ("Benefit0.5/s to 2/s", "Cost1 GPU to 2 GPUs"):
                expect(proposal.locator(".figure", has_text=figure)).to_be_visible()
            assert accessibility_violations(page) == []
            proposal.get_by_role("button", name="Approve…").click()
            assert accessibility_violations(page) == []
            page.get_by_role("dialog").get_by_role("button", name="Approve").click()
            expect(page.get_by_role("dialog")).to_have_count(0)

        expect(page.get_by_role("region", name="Cells").get_by_role("row").nth(1)).to_contain_text("2/s$5/h2/2")
        expect(proposal).to_have_count(0)
        page = console.show("deploy")
        page.get_by_label("Name of the app").fill("planned")
        page.get_by_label("Model: ").fill("a")
        page.get_by_role("button", name="Deploy…").click()
        expect(page.get_by_role("dialog").get_by_text("The app loses")).to_contain_text(
            "the plan, the adaptation to the load."
        )
        client.delete("planned")
