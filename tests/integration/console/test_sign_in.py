"""Signing in and out, and what readers see."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, expect

from tests.integration.console.console_pages import TOKEN, OpenConsole, accessibility_violations


def test_only_the_sign_in_is_shown_without_a_token(stranger: OpenConsole) -> None:
    page = stranger.show("apps/chatter")

    expect(page.get_by_role("button", name="Sign in")).to_be_visible()
    assert "chatter" not in page.content()


@pytest.mark.slow
def test_the_keyboard_signs_in_and_out(stranger: OpenConsole) -> None:
    page = stranger.show()
    token = page.get_by_label("Admin token")

    token.press_sequentially("a wrong token 123")
    token.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("unknown token")
    token.press_sequentially(TOKEN)
    token.press("Enter")
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    page.get_by_role("button", name="Sign out").press("Enter")
    expect(token).to_be_visible()
    assert TOKEN not in page.url


@pytest.mark.slow
@pytest.mark.parametrize("view", ["", "playground/chatter"])
def test_signing_out_shows_the_sign_in_in_all_tabs(console: OpenConsole, context: BrowserContext, view: str) -> None:
    page, other = console.show(), context.new_page()
    other.goto(f"{console.url}/console/#/{view}")
    expect(other.get_by_text("chatter").first).to_be_visible()

    page.get_by_role("button", name="Sign out").click()

    for tab in (page, other):
        expect(tab.get_by_label("Admin token")).to_be_visible()
        assert "chatter" not in tab.content()


@pytest.mark.slow
def test_another_admin_token_ends_what_an_open_page_shows(console: OpenConsole, admin_token_file: Path) -> None:
    console.page.clock.install()
    page = console.show()
    expect(page.get_by_role("row", name="chatter")).to_be_visible()

    admin_token_file.write_text("another-token-of-tests")
    try:
        expect(page.get_by_label("Admin token")).to_be_visible()
        assert "chatter" not in page.content()
        later: list[str] = []
        page.on("request", lambda request: later.append(request.url))
        page.clock.fast_forward(60_000)
        assert page.evaluate("1") == 1
        assert later == []
    finally:
        admin_token_file.write_text(TOKEN)


def test_a_reader_sees_apps_and_no_buttons_that_change_them(reader: OpenConsole) -> None:
    page = reader.show("apps/chatter")

    expect(page.locator("[data-group]")).to_have_count(1)
    expect(page.get_by_text("read only")).to_be_visible()
    for name in ("Scale…", "Restart…", "Delete…"):
        expect(page.get_by_role("button", name=name)).to_have_count(0)
    for link in ("Playground", "Deploy"):
        expect(page.get_by_role("link", name=link)).to_have_count(0)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_sign_in_is_accessible_and_fits(stranger: OpenConsole, scheme: str) -> None:
    stranger.page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    stranger.page.set_viewport_size({"width": 360, "height": 800})

    assert accessibility_violations(stranger.show()) == []
    assert stranger.page.evaluate("document.documentElement.scrollWidth") == 360
