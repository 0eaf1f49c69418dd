"""The playground: requests to apps, and their responses while they arrive."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import FilePayload, Page, expect

from tests.audio import audio_file, sound
from tests.integration.console.console_pages import PNG, WAV, OpenConsole, output_of_code, send, wait_for_answer
from tests.video import video_file

LONG_WAV = FilePayload(name='a "long";sound.wav', mimeType="audio/wav", buffer=audio_file(sound(0, seconds=2)))

EMPTY_WAV = FilePayload(name="empty.wav", mimeType="audio/wav", buffer=b"")

MP4 = FilePayload(name="corn.mp4", mimeType="video/mp4", buffer=video_file(count=4))


def test_a_chat_is_rendered_while_it_arrives(console: OpenConsole) -> None:
    page = console.show("playground/chatter")
    page.get_by_label("System message").fill("slowly")
    _record_answer(page)
    send(page, "one two three four")

    wait_for_answer(page)
    texts = _recorded_texts(page)
    assert any("one" in text and "four" not in text for text in texts)
    assert "one two three four" in texts[-1]


@pytest.mark.slow
def test_an_image_has_its_steps_and_previews_although_the_app_ignores_their_number(console: OpenConsole) -> None:
    page = console.show("playground/sketcher")
    _record_answer(page)
    send(page, "a square", "What to draw")

    wait_for_answer(page)
    previews = set(page.evaluate("window.images"))
    assert len(previews) > 1
    assert any("Step 1 of 3" in text for text in _recorded_texts(page))
    expect(page.locator(".answer img")).to_have_count(1)
    expect(page.locator(".answer").get_by_role("alert")).to_have_count(0)
    page.get_by_text("The last request as code").click()
    expect(page.get_by_label("curl", exact=True)).not_to_contain_text("partial_images")


@pytest.mark.slow
def test_a_field_that_the_user_has_chosen_is_not_left_out(console: OpenConsole) -> None:
    page = console.show("playground/sketcher")
    page.get_by_label("Previews").fill("2")
    send(page, "a square", "What to draw")

    expect(page.locator(".answer").get_by_role("alert")).to_contain_text("no use of 'partial_images'")


@pytest.mark.slow
def test_speech_is_played_while_it_arrives(console: OpenConsole) -> None:
    page = console.show("playground/hummer")
    _record_speech(page)
    _record_answer(page)
    send(page, "one two three", "Text to speak")

    wait_for_answer(page)
    assert any("500 ms of speech" in text for text in _recorded_texts(page))
    assert page.evaluate("window.played") == [0.5, 0.5, 0.5]
    assert _duration(page) == pytest.approx(1.5)


@pytest.mark.slow
def test_an_audio_file_is_played_if_the_app_sends_no_samples(console: OpenConsole) -> None:
    page = console.show("playground/tape")
    send(page, "one", "Text to speak")

    wait_for_answer(page)
    assert _duration(page) == pytest.approx(1)


@pytest.mark.slow
def test_apps_answer_next_to_each_other(console: OpenConsole) -> None:
    page = console.show("playground/chatter")
    page.get_by_label("Invoke with JSON").check()
    page.get_by_label("sketcher").check()
    send(page, '{"messages": [{"role": "user", "content": "hello"}]}', "Request as JSON")

    expect(page.get_by_label("Conversation with chatter")).to_contain_text("hello")
    expect(page.get_by_label("Conversation with sketcher").get_by_role("alert")).to_contain_text("messages")


@pytest.mark.slow
@pytest.mark.parametrize("media", [PNG, WAV, MP4], ids=["image", "audio", "video"])
def test_a_message_has_media(console: OpenConsole, media: FilePayload) -> None:
    page = console.show("playground/chatter")
    page.get_by_label("Files").set_input_files(media)
    expect(page.get_by_role("button", name=f"Remove {media['name']}")).to_be_visible()
    send(page, "hello")

    expect(page.locator(".answer")).to_contain_text("media hello")
    page.get_by_text("The last request as code").click()
    expect(page.get_by_label("curl", exact=True)).to_contain_text(f"$(base64 -w0 '{media['name']}')")


@pytest.mark.slow
def test_a_file_is_transcribed(console: OpenConsole) -> None:
    page = console.show("playground/scribe")
    page.get_by_label("Files").set_input_files(WAV)
    page.get_by_role("button", name="Send").click()

    expect(page.locator(".answer")).to_contain_text("WAV 1")


@pytest.mark.slow
def test_another_file_replaces_the_one_to_transcribe(console: OpenConsole, tmp_path: Path) -> None:
    page = console.show("playground/scribe")
    files = page.get_by_label("Files")
    for sound_file in (WAV, LONG_WAV):
        files.set_input_files(sound_file)
        expect(page.get_by_role("button", name="Remove")).to_have_text([f"{sound_file['name']} ×"])
    files.set_input_files(EMPTY_WAV)
    expect(page.get_by_role("alert")).to_have_text("empty.wav is empty.")
    page.get_by_role("button", name="Send").click()

    expect(page.locator(".answer")).to_contain_text("WAV 2")
    page.get_by_text("The last request as code").click()
    (tmp_path / LONG_WAV["name"]).write_bytes(LONG_WAV["buffer"])
    assert "WAV 2" in output_of_code(page, "curl", tmp_path)


@pytest.mark.slow
def test_a_spoken_response_has_its_text_and_its_speech(console: OpenConsole) -> None:
    page = console.show("playground/speaking-parrot")
    page.get_by_label("Spoken response").check()
    page.get_by_label("Voice").fill("ethan")
    send(page, "hello there")

    expect(page.locator(".answer")).to_contain_text("hello there")
    expect(page.locator("audio")).to_be_visible()

    page.get_by_role("checkbox", name="speaking-parrot").uncheck()
    page.get_by_role("checkbox", name="chatter").check()
    expect(page.get_by_label("Voice")).to_have_count(0)
    send(page, "in writing")
    expect(page.locator(".answer")).to_contain_text("in writing")
    expect(page.get_by_role("alert")).to_have_count(0)


def test_the_keyboard_does_not_send_a_wrong_field(console: OpenConsole) -> None:
    page = console.show("playground/chatter")
    temperature = page.get_by_label("Temperature")
    temperature.fill("9")
    send(page, "hello")
    expect(temperature).to_be_focused()
    temperature.fill("1")
    send(page, "hello")

    expect(page.locator(".answer")).to_have_count(1)


def test_an_app_that_is_not_served_is_named(console: OpenConsole) -> None:
    page = console.show("playground/unknown")

    expect(page.get_by_role("alert")).to_have_text("The app unknown is not served.")
    expect(page.get_by_role("button", name="Send")).to_be_disabled()


@pytest.mark.slow
def test_five_apps_answer_at_most_because_browsers_open_six_connections(console: OpenConsole) -> None:
    page = console.show("playground/chatter")
    page.get_by_label("Invoke with JSON").check()
    for name in ("hummer", "scribe", "sketcher", "speaking-parrot"):
        page.get_by_role("checkbox", name=name).check()

    last = page.get_by_role("checkbox", name="tape")
    expect(last).to_be_disabled()
    page.get_by_role("checkbox", name="hummer").uncheck()
    expect(last).to_be_enabled()


def _record_answer(page: Page) -> None:
    """Records the texts and the images of the answer while it changes, because a busy test would miss some."""
    page.evaluate(
        """() => {
            [window.texts, window.images] = [[], []];
            new MutationObserver(() => {
                const answer = document.querySelector(".answer");
                if (answer) window.texts.push(answer.innerText);
                if (answer?.querySelector("img")) window.images.push(answer.querySelector("img").src);
            }).observe(document.body, { subtree: true, childList: true, characterData: true, attributes: true });
        }"""
    )


def _recorded_texts(page: Page) -> list[str]:
    texts: list[str] = page.evaluate("window.texts")
    return texts


def _record_speech(page: Page) -> None:
    """Records the durations of the parts of speech that the page plays."""
    page.evaluate(
        """() => {
            window.played = [];
            const start = AudioBufferSourceNode.prototype.start;
            AudioBufferSourceNode.prototype.start = function (...args) {
                window.played.push(this.buffer.duration);
                return start.apply(this, args);
            };
        }"""
    )


def _duration(page: Page) -> float:
    """Returns the seconds of the audio player, which the browser has decoded."""
    audio = page.locator("audio")
    page.wait_for_function("audio => audio.readyState > 0", arg=audio.element_handle())
    duration: float = audio.evaluate("audio => audio.duration")
    return duration
