"""Pages of the console, and what tests send to them and read from them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

import httpx2 as httpx
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import ConsoleMessage, FilePayload, Page, Request, Route, expect
from prometheus_client.parser import text_string_to_metric_families

from cornserve.client import Client
from tests.audio import audio_file, sound
from tests.images import encode_file, noise
from tests.integration.cli.cli_instance import CliInstance

TOKEN, READ_TOKEN = "admin-token-of-tests", "read-token-of-tests-"

MINUTE = 60_000
"""Milliseconds that a page may take on a busy machine."""

REQUEST_ID = "request-of-the-timeline"

PNG = FilePayload(name="corn.png", mimeType="image/png", buffer=encode_file(noise(0, 8, 8)))

WAV = FilePayload(name="corn.wav", mimeType="audio/wav", buffer=audio_file(sound(0)))

WITHOUT_SHARED_WORKERS = "delete window.SharedWorker"
"""Lets a page open its streams itself, so that its routes and its events of requests include them."""

VIEWS = [
    "",
    "apps/chatter",
    "apps/chatter/logs",
    "apps/chatter/requests",
    "requests",
    f"requests/{REQUEST_ID}",
    "playground/chatter",
    "deploy",
    "demo",
]


@dataclass(frozen=True, slots=True)
class OpenConsole:
    """A page of the console."""

    page: Page
    url: str

    def show(self, view: str = "") -> Page:
        """Opens a view by its address, such as `apps/chatter`."""
        self.page.goto(f"{self.url}/console/#/{view}")
        return self.page


@dataclass
class PageProblems:
    """The errors of a page, and its requests to other servers."""

    url: str
    found: list[str]

    def watch(self, page: Page) -> None:
        page.on("pageerror", lambda error: self.found.append(str(error)))
        page.on("console", self._on_message)
        page.on("request", self._on_request)

    def _on_message(self, message: ConsoleMessage) -> None:
        # Chromium also reports responses such as 401, which the page shows.
        if message.type == "error" and not message.text.startswith("Failed to load resource"):
            self.found.append(message.text)

    def _on_request(self, request: Request) -> None:
        if not request.url.startswith((f"{self.url}/console", "data:", "blob:")):
            self.found.append(request.url)


@contextmanager
def requests_to(app: str, instance: CliInstance, **fields: int) -> Iterator[None]:
    """Sends requests with a text and further fields to an app, one after the other, during the block."""
    ended = Event()

    def invoke() -> None:
        with Client(instance.url) as client:
            while not ended.is_set():
                client.invoke(app, {"text": "a", **fields})

    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(invoke)
        try:
            yield
        finally:
            ended.set()
    sending.result()


def send(page: Page, text: str, label: str = "Message") -> None:
    page.get_by_label(label, exact=True).fill(text)
    page.get_by_label(label, exact=True).press("Control+Enter")


def wait_for_answer(page: Page) -> None:
    expect(page.locator(".answer")).to_have_attribute("aria-busy", "false")


def output_of_code(page: Page, language: str, directory: Path) -> str:
    """Returns the output of the last request as code, which runs in a directory."""
    code = directory / "code"
    code.write_text(page.get_by_label(language, exact=True).inner_text())
    command = ["bash" if language == "curl" else sys.executable, str(code)]
    return subprocess.run(command, cwd=directory, check=True, capture_output=True, text=True).stdout


def wait_for_documents(page: Page) -> None:
    """Waits until the view has read its documents."""
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    expect(page.get_by_text("Reading…")).to_have_count(0)


def accessibility_violations(page: Page) -> list[str]:
    wait_for_documents(page)
    found = Axe().run(page).response["violations"]
    return [f"{violation['id']}: {violation['nodes'][0]['html']}" for violation in found]


def metric_sums(instance: CliInstance, name: str, by: str, **labels: str) -> Counter[str]:
    """Returns the sums of a metric of the gateway by a label."""
    headers = {"authorization": f"Bearer {TOKEN}"}
    text = httpx.get(f"{instance.url}/metrics", headers=headers, trust_env=False).text
    sums = Counter[str]()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == f"cornserve_gateway_{name}" and labels.items() <= sample.labels.items():
                sums[sample.labels[by]] += round(sample.value)
    return sums


def errors_of_requests(instance: CliInstance, app: str) -> str:
    """Returns what the console shows about the requests that the metrics have counted."""
    statuses = metric_sums(instance, "requests_total", "status", app=app)
    errors = sum(count for status, count in statuses.items() if int(status) >= 500)
    return f"{errors} of {statuses.total()}"


def answer_changed(route: Route, change: Callable[[Any], Any]) -> None:
    """Answers a request of the page with a changed document. A stream has one event."""
    path, is_stream = re.subn(r"/(live|overview)/events$", r"/\1", route.request.url)
    response = route.fetch(url=path)
    document = change(response.json())
    if is_stream:
        name = path.rsplit("/", maxsplit=1)[1]
        route.fulfill(content_type="text/event-stream", body=f"event: {name}\ndata: {json.dumps(document)}\n\n")
    else:
        route.fulfill(status=response.status, json=document)
