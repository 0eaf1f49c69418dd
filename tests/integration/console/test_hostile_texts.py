"""Texts of documents, messages and logs are not run as code."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import FilePayload, expect

from tests.integration.console.console_apps import HOSTILE
from tests.integration.console.console_pages import (
    VIEWS,
    WAV,
    WITHOUT_SHARED_WORKERS,
    OpenConsole,
    answer_changed,
    send,
    wait_for_documents,
)

HOSTILE_WAV = FilePayload(name=HOSTILE, mimeType="audio/wav", buffer=WAV["buffer"])


@pytest.mark.slow
@pytest.mark.usefixtures("all_views")
def test_no_text_of_a_document_is_run_in_any_view(console: OpenConsole) -> None:
    console.page.add_init_script(WITHOUT_SHARED_WORKERS)
    console.page.route("**/admin/v1/**", lambda route: answer_changed(route, _hostile))

    for view in VIEWS:
        page = console.show(view)
        if view != "deploy":  # It reads no document.
            expect(page.get_by_text(HOSTILE).first).to_be_attached()
        wait_for_documents(page)
        assert page.locator("img[src=x]").count() == 0
    console.page.unroute_all(behavior="wait")


@pytest.mark.slow
@pytest.mark.usefixtures("all_views")
def test_no_error_of_the_gateway_is_run_in_any_view(console: OpenConsole) -> None:
    error = {"message": HOSTILE, "code": HOSTILE, "param": HOSTILE, "type": HOSTILE}
    console.page.add_init_script(WITHOUT_SHARED_WORKERS)
    console.page.route("**/admin/v1/**", lambda route: route.fulfill(status=500, json={"error": error}))

    for view in VIEWS:
        page = console.show(view)
        if view == "deploy":
            page.get_by_label("Name of the app").fill("a")
            page.get_by_label("Model: ").fill("b")
            page.get_by_role("button", name="Deploy…").click()
        expect(page.get_by_role("alert").first).to_have_text(HOSTILE)
        assert page.locator("img").count() == 0


@pytest.mark.slow
def test_texts_of_messages_errors_and_logs_are_not_run(console: OpenConsole) -> None:
    page = console.show("playground/chatter")
    page.get_by_label("Files").set_input_files(HOSTILE_WAV)
    expect(page.get_by_role("button", name=f"Remove {HOSTILE}")).to_be_visible()
    send(page, HOSTILE)
    expect(page.locator(".answer")).to_contain_text(HOSTILE)
    page.get_by_text("The last request as code").click()
    expect(page.get_by_label("curl", exact=True)).to_contain_text(HOSTILE)
    send(page, "fail")
    expect(page.locator(".answer").last.get_by_role("alert")).to_contain_text(HOSTILE)

    page = console.show("apps/chatter/logs")
    replicas = page.get_by_label("Replica")
    replicas.select_option(replicas.locator("option").first.inner_text())
    expect(page.get_by_role("log")).to_contain_text(f"log line {HOSTILE}")
    expect(page.locator("img")).to_have_count(0)


@pytest.mark.slow
def test_names_of_apps_and_models_are_not_run(console: OpenConsole) -> None:
    page = console.show("deploy")
    page.get_by_label("Name of the app").fill(HOSTILE)
    page.get_by_label("Model: ").fill(HOSTILE)
    page.get_by_role("button", name="Deploy…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("heading")).to_contain_text(HOSTILE)
    dialog.get_by_role("button", name="Deploy").click()
    expect(dialog.get_by_role("alert")).to_be_visible()

    expect(page.locator("img")).to_have_count(0)


def _hostile(value: Any, name: str = "") -> Any:
    """Returns a document in which each text begins with `HOSTILE`, also those that are keys of a field `name`."""
    if isinstance(value, str):
        return HOSTILE + value
    if isinstance(value, list):
        return [_hostile(each) for each in value]
    if isinstance(value, dict):
        has_names = name not in ("kinds", "codes", "statuses", "received_bytes_total")
        return {key if has_names else HOSTILE + key: _hostile(each, key) for key, each in value.items()}
    return value
