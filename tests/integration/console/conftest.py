"""An instance with a console, and pages of it in a real Chromium.

All tests share a browser. It has the scope of the package, because the thread has a running event loop until it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, sync_playwright

from cornserve.access import ADMIN_TOKEN
from cornserve.client import Client
from cornserve.home import Home
from tests.integration.cli.cli_instance import CliInstance
from tests.integration.console.console_apps import CHATTER, DEMO, DEMO_DRAWER, DEMO_SPELLER, HUMMER, SKETCHER, TAPE
from tests.programs import require_program
from tests.unit.gateway.sources import SCRIBE, SPEAKING_PARROT
from tests.waiting import wait_until

TOKEN, READ_TOKEN = "admin-token-of-tests", "read-token-of-tests-"

MINUTE = 60_000
"""Milliseconds that a page may take on a busy machine."""


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    chromium = require_program("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--autoplay-policy=no-user-gesture-required"]
        )
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def admin_token_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _write(tmp_path_factory.mktemp("access") / "admin", TOKEN)


@pytest.fixture(scope="module")
def instance(
    tmp_path_factory: pytest.TempPathFactory, browser: Browser, admin_token_file: Path
) -> Iterator[CliInstance]:
    """An instance with an admin token, a read-only token and apps that share two replicas of an executor."""
    directory = tmp_path_factory.mktemp("console")
    instance = CliInstance(Home(directory / "home"))
    tokens = admin_token_file, _write(directory / "reader", READ_TOKEN)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv(ADMIN_TOKEN, TOKEN)
        try:
            instance.up("--admin-token", str(tokens[0]), "--read-token", str(tokens[1]), "--gpu-price", "2.5")
            with Client(instance.url) as client:
                for number, source in enumerate((CHATTER, SKETCHER, HUMMER, TAPE, SCRIBE, SPEAKING_PARROT)):
                    file = directory / f"app_{number}.py"
                    file.write_text(source)
                    client.deploy(str(file), replicas=2)
                wait_until(lambda: client.app("chatter").is_scaled)
            yield instance
        finally:
            instance.remove()


@pytest.fixture(scope="module")
def demo_apps(instance: CliInstance, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Deploys echo apps with the names of the apps of `cornserve demo`."""
    file = tmp_path_factory.mktemp("demo") / "app.py"
    with Client(instance.url) as client:
        for source in (DEMO, DEMO_SPELLER, DEMO_DRAWER):
            file.write_text(source)
            client.deploy(str(file), replicas=2)


def _write(file: Path, secret: str) -> Path:
    file.write_text(secret)
    file.chmod(0o600)
    return file


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


@pytest.fixture
def context(browser: Browser, instance: CliInstance) -> Iterator[BrowserContext]:
    context = browser.new_context()
    context.set_default_timeout(MINUTE)
    yield context
    context.close()


@pytest.fixture
def stranger(context: BrowserContext, instance: CliInstance) -> Iterator[OpenConsole]:
    """A page that is not signed in. Fails if the page has errors or contacts other servers."""
    page, problems = context.new_page(), PageProblems(instance.url, [])
    problems.watch(page)
    yield OpenConsole(page, instance.url)
    assert problems.found == []
    assert page.evaluate("window.attacked") is None


@pytest.fixture
def sign_in(context: BrowserContext, instance: CliInstance) -> Callable[[str], None]:
    """Returns a function that signs in without the page."""

    def post(token: str) -> None:
        headers = {"x-cornserve-console": "1"}
        assert context.request.post(f"{instance.url}/console/session", data={"token": token}, headers=headers).ok

    return post


@pytest.fixture
def console(stranger: OpenConsole, sign_in: Callable[[str], None]) -> OpenConsole:
    """A page that is signed in with the admin token."""
    sign_in(TOKEN)
    return stranger


@pytest.fixture
def reader(stranger: OpenConsole, sign_in: Callable[[str], None]) -> OpenConsole:
    """A page that is signed in with the read-only token."""
    sign_in(READ_TOKEN)
    return stranger
