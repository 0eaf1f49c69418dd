"""The keyboard, accessibility and the width of all views."""

from __future__ import annotations

import pytest

from tests.integration.console.console_pages import VIEWS, OpenConsole, accessibility_violations, wait_for_documents

UNREACHED = """() => {
    const controls = document.querySelectorAll("a[href], button, input, select, textarea, summary");
    const reachable = [...controls].filter(each => !each.disabled && each.checkVisibility())
        .filter(each => each.type !== "radio" || each.checked);
    return reachable.filter(each => !each.dataset.reached).map(each => each.outerHTML);
}"""
"""Returns the controls of a page that were not marked as reached. The arrow keys reach the other radio buttons."""

MAX_TABS = 200
"""The Tab key is pressed this number of times in a view at most."""


@pytest.mark.slow
@pytest.mark.usefixtures("all_views")
def test_the_tab_key_reaches_every_control(console: OpenConsole) -> None:
    unreached: dict[str, list[str]] = {}
    for view in VIEWS:
        page = console.show(view)
        wait_for_documents(page)
        known = page.locator("a[href], button, input, select, textarea, summary").count()
        for pressed in range(MAX_TABS):  # Further controls may appear while the documents of the view arrive.
            page.keyboard.press("Tab")
            page.evaluate("document.activeElement.dataset.reached = 1")
            unreached[view] = page.evaluate(UNREACHED)
            if pressed > known and not unreached[view]:
                break

    assert not any(unreached.values()), unreached


@pytest.mark.slow
@pytest.mark.usefixtures("all_views")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_views_are_accessible(console: OpenConsole, scheme: str) -> None:
    console.page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    violations = {view: accessibility_violations(console.show(view)) for view in VIEWS}

    assert not any(violations.values()), violations


@pytest.mark.slow
@pytest.mark.usefixtures("all_views")
@pytest.mark.parametrize("width", [360, 800, 1280, 2560])
def test_no_view_is_wider_than_the_window(console: OpenConsole, width: int) -> None:
    console.page.set_viewport_size({"width": width, "height": 800})
    widths = {}
    for view in VIEWS:
        wait_for_documents(console.show(view))
        widths[view] = console.page.evaluate("document.documentElement.scrollWidth")

    assert widths == dict.fromkeys(VIEWS, width)
