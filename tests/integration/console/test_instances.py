"""The console of an instance with two gateways and a real Prometheus, which scrapes it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx2 as httpx
import psutil
import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, expect

from cornserve.client import Client
from cornserve.home import Home
from tests.free_ports import free_port
from tests.integration.cli.cli_instance import CliInstance
from tests.integration.console.console_apps import CHATTER
from tests.integration.console.console_pages import MINUTE
from tests.programs import require_program
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]

REQUEST_ID = "request-of-the-other-gateway"


@contextmanager
def running_prometheus(directory: Path, port: int, url: str) -> Iterator[None]:
    """Starts Prometheus, which scrapes the processes of the instance every second."""
    program = require_program("prometheus")
    discovery = {"url": f"{url}/admin/v1/metrics/targets", "refresh_interval": "1s"}
    scrape = {"job_name": "cornserve", "scrape_interval": "1s", "http_sd_configs": [discovery]}
    config = directory / "prometheus.json"
    config.write_text(json.dumps({"scrape_configs": [scrape]}))
    command = [program, f"--config.file={config}", f"--storage.tsdb.path={directory / 'data'}"]
    with subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{port}"], stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def observed(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliInstance]:
    directory = tmp_path_factory.mktemp("observed")
    instance = CliInstance(Home(directory / "home"))
    port = free_port()
    source = directory / "app.py"
    source.write_text(CHATTER)
    try:
        instance.up("--gateways", "2", "--prometheus", f"http://127.0.0.1:{port}")
        instance.deploy(str(source))
        with running_prometheus(directory, port, instance.url):
            yield instance
    finally:
        instance.remove()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page()
    page.set_default_timeout(MINUTE)
    yield page
    page.close()


def test_charts_show_a_day_with_prometheus(page: Page, observed: CliInstance) -> None:
    with Client(observed.url) as client:

        def is_counted() -> bool:
            client.complete("chatter", [{"role": "user", "content": "hello"}])
            day = httpx.get(f"{observed.url}/admin/v1/apps/chatter/series?hours=24", trust_env=False).json()
            return bool(day["requests_per_second"][-1]) and (day["ready"][-1], day["failed"][-1]) == (1, 0)

        wait_until(is_counted)
    page.goto(f"{observed.url}/console/#/apps/chatter")
    page.get_by_label("day", exact=True).check()

    requests = page.get_by_role("img", name=re.compile(r"Requests per second: requests [0-9.]+, errors 0$"))
    replicas = page.get_by_role("img", name="Replicas: ready 1, starting 0, draining 0, failed 0")
    expect(page.get_by_role("heading", name="Last day")).to_be_visible(timeout=MINUTE)
    for chart in (requests, replicas):
        expect(chart).to_be_visible(timeout=MINUTE)


@pytest.mark.parametrize(
    "view",
    ["", "apps/chatter", "apps/chatter/logs", "requests", f"requests/{REQUEST_ID}", "requests/unknown"],
    ids=["overview", "app", "logs", "requests", "timeline", "unknown request"],
)
def test_a_gateway_whose_figures_are_missing_is_named(page: Page, observed: CliInstance, view: str) -> None:
    answering, other = observed.gateway_addresses()
    [stopped] = [each for each in observed.processes("cornserve.gateway") if _listens(each, int(other.split(":")[1]))]
    body = {"model": "chatter", "messages": [{"role": "user", "content": "hello"}]}
    url, headers = f"http://{answering}/v1/chat/completions", {"x-request-id": REQUEST_ID}
    httpx.post(url, json=body, headers=headers, timeout=60, trust_env=False).raise_for_status()
    missing = page.locator("main").get_by_text(re.compile(rf"{other}(: | \(| did not answer)"))
    page.goto(f"http://{answering}/console/#/{view}")
    expect(page.get_by_role("heading", level=1)).to_be_visible(timeout=MINUTE)
    expect(missing).to_have_count(0)

    stopped.suspend()
    try:
        page.reload()
        # The view of an app has the executor graph and the charts of the last hour.
        expect(missing).to_have_count(2 if view == "apps/chatter" else 1, timeout=MINUTE)
    finally:
        with suppress(psutil.NoSuchProcess):  # The supervisor replaces a process that hangs.
            stopped.resume()
    wait_until(lambda: _answers(other))
    page.reload()
    expect(page.get_by_role("heading", level=1)).to_be_visible(timeout=MINUTE)
    expect(missing).to_have_count(0, timeout=MINUTE)


def test_the_script_saves_an_image_of_an_app(observed: CliInstance, tmp_path: Path) -> None:
    image = tmp_path / "app.png"
    command = [sys.executable, "-m", "scripts.console_screenshot", "chatter", str(image), "--url", observed.url]

    subprocess.run(command, cwd=ROOT, check=True)

    with Image.open(image) as saved:
        assert saved.size == (1280, 900)


def _answers(address: str) -> bool:
    with suppress(httpx.TransportError):
        return httpx.get(f"http://{address}/readyz", trust_env=False).status_code == 200
    return False


def _listens(process: psutil.Process, port: int) -> bool:
    return any(each.status == psutil.CONN_LISTEN and each.laddr.port == port for each in process.net_connections())
