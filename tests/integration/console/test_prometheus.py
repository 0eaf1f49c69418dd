"""The charts of more than an hour, with a real Prometheus that scrapes the instance."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2 as httpx
import pytest
from playwright.sync_api import Browser, expect

from cornserve.client import Client
from cornserve.home import Home
from tests.free_ports import free_port
from tests.integration.cli.cli_instance import CliInstance
from tests.integration.console.conftest import MINUTE
from tests.integration.console.console_apps import CHATTER
from tests.programs import require_program
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


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


def test_charts_show_a_day_with_prometheus(browser: Browser, tmp_path: Path) -> None:
    instance = CliInstance(Home(tmp_path / "home"))
    port = free_port()
    source = tmp_path / "app.py"
    source.write_text(CHATTER)
    try:
        instance.up("--prometheus", f"http://127.0.0.1:{port}")
        with running_prometheus(tmp_path, port, instance.url), Client(instance.url) as client:
            client.deploy(str(source))

            def is_counted() -> bool:
                client.complete("chatter", [{"role": "user", "content": "hello"}])
                day = httpx.get(f"{instance.url}/admin/v1/apps/chatter/series?hours=24", trust_env=False).json()
                return bool(day["requests_per_second"][-1]) and day["ready"][-1] == 1

            wait_until(is_counted)
            page = browser.new_page()
            page.goto(f"{instance.url}/console/#/apps/chatter")
            page.get_by_label("day", exact=True).check()

            chart = page.get_by_role("img", name=re.compile(r"Requests per second: requests [0-9.]+, errors 0$"))
            expect(page.get_by_role("heading", name="Last day")).to_be_visible(timeout=MINUTE)
            expect(chart).to_be_visible(timeout=MINUTE)
            page.close()
    finally:
        instance.remove()
