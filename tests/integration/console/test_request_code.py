"""The last request of the playground as code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.integration.console.console_pages import (
    PNG,
    WAV,
    OpenConsole,
    answer_changed,
    output_of_code,
    send,
    wait_for_answer,
)


@pytest.mark.slow
def test_the_code_of_a_form_does_not_change_its_texts(console: OpenConsole) -> None:
    def edit_images(overview: Any) -> Any:
        return overview | {"apps": [app | {"operations": ["image editing"]} for app in overview["apps"]]}

    console.page.route("**/admin/v1/overview", lambda route: answer_changed(route, edit_images))
    page = console.show("playground/sketcher")
    page.get_by_label("Files").set_input_files(PNG)
    send(page, '@secret;type="a"', "What to change")

    page.get_by_text("The last request as code").click()
    expect(page.get_by_label("curl", exact=True)).to_contain_text("""--form-string 'prompt=@secret;type="a"'""")


@pytest.mark.slow
def test_the_code_of_the_last_request_gets_the_same_answer(console: OpenConsole, tmp_path: Path) -> None:
    page = console.show("playground/chatter")
    send(page, 'it\'s "five" $HOME `six`')
    wait_for_answer(page)
    page.get_by_text("The last request as code").click()

    printed = output_of_code(page, "curl", tmp_path)
    for word in ("it's", "$HOME", "`six`"):
        assert f'{word} "' in printed
    assert output_of_code(page, "Python", tmp_path).strip() == 'it\'s "five" $HOME `six`'


@pytest.mark.slow
def test_the_code_of_a_chat_reads_all_its_files(console: OpenConsole, tmp_path: Path) -> None:
    page = console.show("playground/chatter")
    (tmp_path / PNG["name"]).write_bytes(PNG["buffer"])
    (tmp_path / WAV["name"]).write_bytes(WAV["buffer"])
    for media, text in ((PNG, "first"), (WAV, "it's `two` $HOME \\n " + "x" * 150_000)):
        page.get_by_label("Files").set_input_files(media)
        expect(page.get_by_role("button", name=f"Remove {media['name']}")).to_be_visible()
        send(page, text)
        expect(page.locator(".answer").last).to_have_attribute("aria-busy", "false")
    assert page.get_by_label("curl", exact=True).count() == 0
    page.get_by_text("The last request as code").click()

    for media in (PNG, WAV):
        for language in ("curl", "Python"):
            expect(page.get_by_label(language, exact=True)).to_contain_text(media["name"])
    assert '$HOME "' in output_of_code(page, "curl", tmp_path)
    assert "media it's `two` $HOME \\n xxx" in output_of_code(page, "Python", tmp_path)


@pytest.mark.slow
def test_an_integer_is_sent_as_it_is_written(console: OpenConsole, tmp_path: Path) -> None:
    page = console.show("playground/chatter")
    page.get_by_label("Invoke with JSON").check()
    document = '{"messages": [{"role": "user", "content": "hello"}], "seed": 9007199254740993}'
    with page.expect_request("**/invoke") as sent:
        send(page, document, "Request as JSON")

    assert sent.value.post_data == document
    wait_for_answer(page)
    page.get_by_text("The last request as code").click()
    expect(page.get_by_label("curl", exact=True)).to_contain_text(document)
    assert "'finish_reason': 'stop'" in output_of_code(page, "Python", tmp_path)
