"""An instance with a console, and pages of it in a real Chromium.

All tests share a browser. It has the scope of the package, because the thread has a running event loop until it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2 as httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, expect, sync_playwright

from cornserve.access import ADMIN_TOKEN
from cornserve.client import Client
from cornserve.home import Home
from tests.integration.cli.cli_instance import CliInstance
from tests.integration.console.console_apps import CHATTER, DEMO, DEMO_DRAWER, DEMO_SPELLER, HUMMER, SKETCHER, TAPE
from tests.integration.console.console_pages import (
    MINUTE,
    READ_TOKEN,
    REQUEST_ID,
    TOKEN,
    OpenConsole,
    PageProblems,
)
from tests.programs import require_program
from tests.unit.gateway.sources import SCRIBE, SPEAKING_PARROT
from tests.waiting import wait_until

expect.set_options(timeout=MINUTE)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    chromium = require_program("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--autoplay-policy=no-user-gesture-required"]
        )
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def admin_token_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _write(tmp_path_factory.mktemp("access") / "admin", TOKEN)


@pytest.fixture(scope="package")
def package_instance(
    tmp_path_factory: pytest.TempPathFactory, browser: Browser, admin_token_file: Path
) -> Iterator[CliInstance]:
    """An instance with an admin token, a read-only token and apps that share two replicas of an executor."""
    directory = tmp_path_factory.mktemp("console")
    instance = CliInstance(Home(directory / "home"))
    tokens = admin_token_file, _write(directory / "reader", READ_TOKEN)
    try:
        instance.up("--admin-token", str(tokens[0]), "--read-token", str(tokens[1]), "--gpu-price", "2.5")
        with Client(instance.url, admin_token=TOKEN) as client:
            for number, source in enumerate((CHATTER, SKETCHER, HUMMER, TAPE, SCRIBE, SPEAKING_PARROT)):
                file = directory / f"app_{number}.py"
                file.write_text(source)
                client.deploy(str(file), replicas=2)
            wait_until(lambda: client.app("chatter").is_scaled)
        yield instance
    finally:
        instance.remove()


@pytest.fixture
def instance(package_instance: CliInstance, monkeypatch: pytest.MonkeyPatch) -> CliInstance:
    """The instance of the package. Clients and commands of the test send its admin token."""
    monkeypatch.setenv(ADMIN_TOKEN, TOKEN)
    return package_instance


@pytest.fixture(scope="package")
def demo_apps(package_instance: CliInstance, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Deploys echo apps with the names of the apps of `cornserve demo`."""
    file = tmp_path_factory.mktemp("demo") / "app.py"
    with Client(package_instance.url, admin_token=TOKEN) as client:
        for source in (DEMO, DEMO_SPELLER, DEMO_DRAWER):
            file.write_text(source)
            client.deploy(str(file), replicas=2)


@pytest.fixture
def all_views(instance: CliInstance, demo_apps: None) -> None:
    """Gives each view something to show."""
    body = {"model": "chatter", "messages": [{"role": "user", "content": "hello"}]}
    headers = {"authorization": f"Bearer {TOKEN}", "x-request-id": REQUEST_ID}
    url = f"{instance.url}/v1/chat/completions"
    assert httpx.post(url, json=body, headers=headers, timeout=60, trust_env=False).status_code == 200


def _write(file: Path, secret: str) -> Path:
    file.write_text(secret)
    file.chmod(0o600)
    return file


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
