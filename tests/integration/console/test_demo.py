"""The page of `cornserve demo`, with its image model, and with echo apps in place of its language models."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from cornserve.client import Client
from cornserve.home import Home
from cornserve_demo import drawer
from tests.integration.cli.cli_instance import CliInstance
from tests.integration.console.console_apps import DEMO, DEMO_SPELLER

pytestmark = pytest.mark.slow

MINUTES = 240_000
"""Milliseconds that executors may take to start on a busy machine."""


@pytest.fixture(scope="module")
def demo(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    directory = tmp_path_factory.mktemp("demo")
    instance = CliInstance(Home(directory / "home"))
    try:
        instance.up(cpu_slots=6, slab_mib=128)
        with Client(instance.url) as client:
            for source in (DEMO, DEMO_SPELLER):
                file: Path = directory / "app.py"
                file.write_text(source)
                client.deploy(str(file))
            client.deploy(drawer.MODEL, name=drawer.MODEL_APP)
        page = browser.new_page()
        page.set_default_timeout(MINUTES)
        page.goto(f"{instance.url}/console/#/demo")
        yield page
        page.close()
    finally:
        instance.remove()


def test_a_drawing_has_its_name_and_lights_its_executor(demo: Page) -> None:
    demo.get_by_label("One or two shapes").fill("red circle")
    demo.get_by_role("button", name="Draw and name").click()

    expect(demo.locator(".node.busy").first).to_be_visible(timeout=MINUTES)
    expect(demo.locator("figcaption")).to_have_text('drawn from "red circle", named "red circle"', timeout=MINUTES)
    box = demo.get_by_alt_text("red circle").bounding_box()
    assert box is not None
    assert (round(box["width"]), round(box["height"])) == (256, 256)


def test_a_word_is_spelled(demo: Page) -> None:
    demo.get_by_label("A word").fill("corn")
    demo.get_by_role("button", name="Spell", exact=True).click()

    expect(demo.locator(".answer")).to_contain_text("Spell corn", timeout=MINUTES)


def test_a_killed_executor_recovers(demo: Page) -> None:
    demo.get_by_role("button", name="Kill an executor").click()

    expect(demo.get_by_role("status").first).to_contain_text("Another one was ready after", timeout=MINUTES)


def test_the_model_is_served_whole_and_split_with_both_throughputs(demo: Page) -> None:
    graph = demo.get_by_role("region", name=f"Executors of {drawer.MODEL_APP}")
    for name, executors in (("Whole model", 1), ("Split components", 3)):
        demo.get_by_role("button", name=name).click()
        rate = demo.get_by_role("region", name="Throughputs").get_by_role("row", name=name).get_by_role("cell")
        expect(rate).not_to_have_text("–", timeout=MINUTES)
        assert float(rate.inner_text()) > 0
        expect(graph.locator("[data-group]")).to_have_count(executors)
    expect(graph.locator(".edge", has_text="same node").first).to_be_visible(timeout=MINUTES)
