"""The playground with tiny models of each modality. `test_demo.py` draws images with a real model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2 as httpx
import pytest
from playwright.sync_api import Browser, FilePayload, Page, expect

from cornserve.client import Client
from cornserve.home import Home
from tests.audio import audio_file, sound
from tests.images import encode_file, noise
from tests.integration.cli.cli_instance import CliInstance
from tests.video import video_file

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

MINUTES = 240_000
"""Milliseconds that executors may take to answer on a busy machine."""

SMALL_CACHE = {"kv_cache_memory_bytes": 64 << 20}
"""The option of executors on vLLM. The default takes a gigabyte for each engine."""

PNG = FilePayload(name="corn.png", mimeType="image/png", buffer=encode_file(noise(0, 64, 64)))
WAV = FilePayload(name="corn.wav", mimeType="audio/wav", buffer=audio_file(sound(0)))
MP4 = FilePayload(name="corn.mp4", mimeType="video/mp4", buffer=video_file(count=4))


@pytest.fixture(scope="module")
def model_instance(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliInstance]:
    instance = CliInstance(Home(tmp_path_factory.mktemp("models") / "home"))
    try:
        instance.up(slab_mib=128)
        yield instance
    finally:
        instance.remove()


@contextmanager
def playground(browser: Browser, instance: CliInstance, model: Path, options: dict[str, int] | None) -> Iterator[Page]:
    """Deploys a model during the block, and opens its playground. The last request must have succeeded."""
    with Client(instance.url) as client:
        client.deploy(str(model), name="model", options=options)
        page = browser.new_page()
        page.set_default_timeout(MINUTES)
        page.goto(f"{instance.url}/console/#/playground/model")
        yield page
        expect(page.locator(".answer")).to_have_attribute("aria-busy", "false", timeout=MINUTES)
        expect(page.locator(".answer").get_by_role("alert")).to_have_count(0)
        last, *_ = httpx.get(f"{instance.url}/admin/v1/requests", trust_env=False).json()["recent"]
        assert last["status"] == 200
        page.close()
        client.delete("model")


def test_a_chat_has_an_image_and_a_video(browser: Browser, model_instance: CliInstance, tiny_qwen25vl: Path) -> None:
    with playground(browser, model_instance, tiny_qwen25vl, SMALL_CACHE) as page:
        page.get_by_label("Files").set_input_files([PNG, MP4])
        page.get_by_label("Maximum tokens").fill("8")
        page.get_by_label("Message", exact=True).fill("What is this?")
        page.get_by_label("Message", exact=True).press("Control+Enter")


def test_a_chat_has_audio(browser: Browser, model_instance: CliInstance, tiny_qwen2audio: Path) -> None:
    with playground(browser, model_instance, tiny_qwen2audio, SMALL_CACHE) as page:
        page.get_by_label("Files").set_input_files(WAV)
        page.get_by_label("Maximum tokens").fill("8")
        page.get_by_label("Message", exact=True).fill("What do you hear?")
        page.get_by_label("Message", exact=True).press("Control+Enter")


def test_a_file_is_transcribed(browser: Browser, model_instance: CliInstance, tiny_whisper: Path) -> None:
    with playground(browser, model_instance, tiny_whisper, SMALL_CACHE) as page:
        page.get_by_label("Files").set_input_files(WAV)
        page.get_by_role("button", name="Send").click()


def test_a_text_is_spoken(browser: Browser, model_instance: CliInstance, tiny_vits: Path) -> None:
    with playground(browser, model_instance, tiny_vits, None) as page:
        page.get_by_label("Text to speak").fill("one two")
        page.get_by_label("Text to speak").press("Control+Enter")
        audio = page.locator("audio")
        expect(audio).to_be_visible(timeout=MINUTES)
        page.wait_for_function("audio => audio.duration > 0", arg=audio.element_handle())


def test_an_image_is_edited(browser: Browser, model_instance: CliInstance, tiny_qwenimageedit: Path) -> None:
    with playground(browser, model_instance, tiny_qwenimageedit, None) as page:
        page.get_by_label("Files").set_input_files(PNG)
        page.get_by_label("Steps").fill("3")
        page.get_by_label("What to change").fill("make it red")
        page.get_by_label("What to change").press("Control+Enter")
        expect(page.locator(".answer img")).to_have_count(1, timeout=MINUTES)
