"""The console in a real Chromium, with an instance of echo apps."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import quote

import httpx2 as httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import BrowserContext, FilePayload, Page, Route, expect
from prometheus_client.parser import text_string_to_metric_families

from cornserve.app.settings import AdaptationSettings, AppPolicies
from cornserve.app.spec import AppSource, AppSpec
from cornserve.client import Client, ClientError
from tests.audio import audio_file, sound
from tests.images import encode_file, noise
from tests.ingress_proxy import PREFIX, ingress_proxy, rewriting_ingress
from tests.integration.cli.cli_instance import CliInstance
from tests.integration.console.conftest import MINUTE, TOKEN, OpenConsole, PageProblems
from tests.integration.console.console_apps import HOSTILE, PLANNED, STAGED
from tests.unit.app.plans import cell, plan
from tests.video import video_file
from tests.waiting import wait_until

expect.set_options(timeout=MINUTE)

PNG = FilePayload(name="corn.png", mimeType="image/png", buffer=encode_file(noise(0, 8, 8)))
WAV = FilePayload(name="corn.wav", mimeType="audio/wav", buffer=audio_file(sound(0)))
LONG_WAV = FilePayload(name='a "long";sound.wav', mimeType="audio/wav", buffer=audio_file(sound(0, seconds=2)))
EMPTY_WAV = FilePayload(name="empty.wav", mimeType="audio/wav", buffer=b"")
HOSTILE_WAV = FilePayload(name=HOSTILE, mimeType="audio/wav", buffer=WAV["buffer"])
MP4 = FilePayload(name="corn.mp4", mimeType="video/mp4", buffer=video_file(count=4))

REQUEST_ID = "request-of-the-timeline"

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

WITHOUT_SHARED_WORKERS = "delete window.SharedWorker"
"""Lets a page open its streams itself, so that its routes and its events of requests include them."""

UNREACHED = """() => {
    const controls = document.querySelectorAll("a[href], button, input, select, textarea, summary");
    const reachable = [...controls].filter(each => !each.disabled && each.checkVisibility())
        .filter(each => each.type !== "radio" || each.checked);
    return reachable.filter(each => !each.dataset.reached).map(each => each.outerHTML);
}"""
"""Returns the controls of a page that were not marked as reached. The arrow keys reach the other radio buttons."""

MAX_TABS = 200
"""The Tab key is pressed this number of times in a view at most."""

RECORD_KILL = """() => {
    const send = window.fetch;
    window.fetch = (path, ...more) => {
        if (String(path).endsWith("/kill")) window.killed = performance.now();
        return send(path, ...more);
    };
    const dots = () => [...document.querySelectorAll("[data-replica]")]
        .map(each => each.dataset.replica + each.classList).join();
    window.watch = () => {
        window.before = dots();
        window.shown = null;
    };
    new MutationObserver(() => {
        if (window.shown === null && dots() !== window.before) window.shown = performance.now();
    }).observe(document.body, { subtree: true, childList: true, attributes: true });
}"""
"""Records when a page asks to kill a replica, and when it shows a change of a replica."""


@pytest.fixture
def all_views(instance: CliInstance, demo_apps: None) -> None:
    """Gives each view something to show."""
    body = {"model": "chatter", "messages": [{"role": "user", "content": "hello"}]}
    headers = {"authorization": f"Bearer {TOKEN}", "x-request-id": REQUEST_ID}
    url = f"{instance.url}/v1/chat/completions"
    assert httpx.post(url, json=body, headers=headers, timeout=60, trust_env=False).status_code == 200


class TestSignIn:
    def test_only_the_sign_in_is_shown_without_a_token(self, stranger: OpenConsole) -> None:
        page = stranger.show("apps/chatter")

        expect(page.get_by_role("button", name="Sign in")).to_be_visible()
        assert "chatter" not in page.content()

    @pytest.mark.slow
    def test_the_keyboard_signs_in_and_out(self, stranger: OpenConsole) -> None:
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
    def test_signing_out_shows_the_sign_in_in_all_tabs(
        self, console: OpenConsole, context: BrowserContext, view: str
    ) -> None:
        page, other = console.show(), context.new_page()
        other.goto(f"{console.url}/console/#/{view}")
        expect(other.get_by_text("chatter").first).to_be_visible()

        page.get_by_role("button", name="Sign out").click()

        for tab in (page, other):
            expect(tab.get_by_label("Admin token")).to_be_visible()
            assert "chatter" not in tab.content()

    @pytest.mark.slow
    def test_another_admin_token_ends_what_an_open_page_shows(
        self, console: OpenConsole, admin_token_file: Path
    ) -> None:
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

    def test_a_reader_sees_apps_and_no_buttons_that_change_them(self, reader: OpenConsole) -> None:
        page = reader.show("apps/chatter")

        expect(page.locator("[data-group]")).to_have_count(1)
        expect(page.get_by_text("read only")).to_be_visible()
        for name in ("Scale…", "Restart…", "Delete…"):
            expect(page.get_by_role("button", name=name)).to_have_count(0)
        for link in ("Playground", "Deploy"):
            expect(page.get_by_role("link", name=link)).to_have_count(0)


class TestViews:
    @pytest.mark.slow
    def test_the_overview_has_the_figures_of_the_status_and_of_the_metrics(
        self, console: OpenConsole, instance: CliInstance
    ) -> None:
        with Client(instance.url) as client:
            ready = sum(group.ready for group in client.app("chatter").status.groups)
        row = console.show().get_by_role("row", name="chatter")

        expect(row.locator('[data-figure="ready"]')).to_have_text(f"{ready}/2")
        expect(row.locator('[data-figure="errors"]')).to_have_text(_errors_of_requests(instance, "chatter"))

    @pytest.mark.slow
    def test_the_overview_has_the_figures_that_the_command_line_watches(
        self, console: OpenConsole, instance: CliInstance
    ) -> None:
        with Client(instance.url) as client:
            client.complete("chatter", [{"role": "user", "content": "hello"}])
        row = console.show().get_by_role("row", name="chatter")
        command = [sys.executable, "-m", "cornserve.cli", "status", "--watch", "--json", "--url", instance.url]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as watching:
            assert watching.stdout is not None
            lines = iter(watching.stdout)

            def is_shown() -> bool:
                figures = next(app for app in json.loads(next(lines))["apps"] if app["name"] == "chatter")
                shown: list[str] = row.get_by_role("cell").all_inner_texts()
                return shown == _cells(figures)

            try:
                wait_until(is_shown)
            finally:
                watching.terminate()

    @pytest.mark.slow
    def test_the_view_of_an_app_has_the_figures_of_the_status_and_of_the_metrics(
        self, console: OpenConsole, instance: CliInstance
    ) -> None:
        with Client(instance.url) as client:
            client.deploy(AppSpec(source=AppSource(inline=STAGED)), name="staged")
            for images in (1, 2):
                client.invoke("staged", {"text": "a", "images": images})
            with pytest.raises(ClientError):
                client.invoke("staged", {"text": "a", "images": -1})
            page = console.show("apps/staged")
            groups = client.app("staged").status.groups
            for group in groups:
                node = page.locator(f'[data-group="{group.key}"]')
                expect(node).to_have_attribute("data-ready", str(group.ready))
                expect(node).to_have_attribute("data-wanted", str(group.wanted))
            figures = page.locator(".figure")
            expect(figures.filter(has_text="Errors")).to_contain_text(_errors_of_requests(instance, "staged"))
            page.get_by_text("Replicas and edges as tables").click()
            counted = _samples(instance, "invocations_total", "replica")
            replicas = {replica.id: counted[replica.id] for group in groups for replica in group.replicas}
            assert sum(replicas.values()) == 5
            wait_until(lambda: _columns(page, "Replicas", 0, 4) == replicas)
            edges = _samples(instance, "edge_invocations_total", "target", app="staged")
            wait_until(lambda: _columns(page, "Edges", 1, 2) == edges)
            client.delete("staged")

    @pytest.mark.slow
    def test_the_edges_of_the_graph_have_rates_and_the_kind_of_their_transfers(
        self, console: OpenConsole, instance: CliInstance
    ) -> None:
        with Client(instance.url) as client:
            client.deploy(AppSpec(source=AppSource(inline=STAGED)), name="staged")
            page = console.show("apps/staged")
            between = page.get_by_role("region", name="Executor graph").locator(".edge", has_text="same node")
            with _requests_to("staged", instance, images=1):
                expect(between).to_have_class(re.compile("active"))
                expect(between).to_contain_text(re.compile(r"[1-9].*/s.*B/s"))
                expect(page.locator(".node.busy").first).to_be_visible()
            client.delete("staged")

    def test_the_graph_shows_a_killed_executor_and_its_recovery_without_a_reload(
        self, console: OpenConsole, instance: CliInstance
    ) -> None:
        page = console.show("apps/chatter")
        node = page.locator("[data-group]")
        expect(node).to_have_attribute("data-ready", "2")
        page.evaluate("window.loaded = 1")
        before = page.locator("[data-replica]").evaluate_all("dots => dots.map(dot => dot.dataset.replica)")

        page.get_by_role("button", name="Kill a replica…").click()
        page.get_by_role("dialog").get_by_role("button", name="Kill").click()

        others = "".join(f':not([data-replica="{replica}"])' for replica in before)
        expect(page.locator(f"[data-replica]{others}")).to_have_count(1)
        expect(node).to_have_attribute("data-ready", "2")
        assert page.evaluate("window.loaded") == 1

    @pytest.mark.slow
    def test_more_windows_than_connections_are_live(
        self, console: OpenConsole, context: BrowserContext, instance: CliInstance
    ) -> None:
        apps = ["hummer", "scribe", "sketcher", "speaking-parrot", "tape", "chatter"]
        pages = {view: context.new_page() for view in ["", *(f"apps/{app}" for app in apps)]}
        for view, page in pages.items():
            page.goto(f"{console.url}/console/#/{view}")
            page.evaluate("window.loaded = 1")
        for app in apps:
            expect(pages[f"apps/{app}"].locator("[data-group]")).to_have_count(1)
        with Client(instance.url) as client:
            client.complete("chatter", [{"role": "user", "content": "hello"}])
        errors = _errors_of_requests(instance, "chatter")

        expect(pages["apps/chatter"].locator(".figure", has_text="Errors")).to_contain_text(errors)
        row = pages[""].get_by_role("row", name="chatter")
        expect(row.locator('[data-figure="errors"]')).to_have_text(errors)
        assert all(page.evaluate("window.loaded") == 1 for page in pages.values())

    @pytest.mark.slow
    @pytest.mark.usefixtures("demo_apps")
    def test_the_demo_has_one_stream(self, console: OpenConsole) -> None:
        console.page.add_init_script(WITHOUT_SHARED_WORKERS)
        streams: list[str] = []
        console.page.on("request", lambda request: streams.append(request.url) if "/events" in request.url else None)
        page = console.show("demo")

        expect(page.get_by_role("region", name=re.compile("Executors of"))).to_have_count(3)
        assert len(streams) == 1

    @pytest.mark.slow
    def test_an_app_that_was_deleted_is_shown_again_once_it_is_deployed(
        self, console: OpenConsole, instance: CliInstance
    ) -> None:
        spec = AppSpec(source=AppSource(inline=STAGED))
        with Client(instance.url) as client:
            client.deploy(spec, name="staged")
            page = console.show("apps/staged")
            page.evaluate("window.loaded = 1")
            expect(page.locator("[data-group]").first).to_be_visible()
            client.delete("staged")
            expect(page.get_by_role("alert")).to_have_text("The app staged has been deleted.")
            expect(page.locator(".state")).to_have_count(0)
            client.deploy(spec, name="staged")
            expect(page.locator("[data-group]").first).to_be_visible()
            expect(page.get_by_role("alert")).to_have_count(0)
            assert page.evaluate("window.loaded") == 1
            client.delete("staged")

    @pytest.mark.slow
    @pytest.mark.parametrize("replica", ["unknown", "..%2f..%2fstate.db", "%00", "x" * 300, "<b>"])
    def test_other_processes_are_not_killed(self, console: OpenConsole, replica: str) -> None:
        url = f"{console.url}/console/admin/v1/apps/chatter/replicas/{replica}/kill"
        refused = console.page.request.post(url, headers={"x-cornserve-console": "1"})

        assert refused.status in (400, 404)
        assert "replica" in refused.text() or "path" in refused.text()

    @pytest.mark.slow
    def test_a_plan_has_its_promise_its_cells_and_its_costs(self, console: OpenConsole, instance: CliInstance) -> None:
        cells = cell(1, {"EL": 1}, count=1, rate=4.0), cell(2, {"EL": 2}, rate=10.0)
        spec = AppSpec(source=AppSource(inline=PLANNED), plan=plan(*cells))
        with Client(instance.url) as client:
            client.deploy(spec, name="planned")
            for number in range(4):
                client.invoke("planned", {"text": "a", "images": number % 2})
        page = console.show("apps/planned")
        running = page.get_by_role("region", name="Cells").get_by_role("row")

        expect(running).to_have_count(2)
        expect(running.nth(1)).to_contain_text("4/s$2.5/h1/1")
        for figure in ("Promised4/s", "GPUs1", "Cost$2.5/h"):
            expect(page.locator(".figure", has_text=figure).last).to_be_visible()
        expect(page.get_by_text(re.compile(r"EL \(1 in a cell of 1 GPU\): .+ of its time is used"))).to_be_visible()
        assert _violations(page) == []
        shares = page.get_by_role("region", name="Shares of the paths")
        expect(shares.get_by_role("row", name="images: path 0 of cell")).to_contain_text("100 %")
        page.get_by_role("button", name="Scale…").click()
        page.get_by_role("spinbutton").fill("0")
        page.get_by_role("dialog").get_by_role("button", name="Scale").click()
        expect(page.locator("input:invalid")).to_have_count(1)
        page.get_by_role("spinbutton").fill("8")
        page.get_by_role("dialog").get_by_role("button", name="Scale").click()

        expect(running.nth(1)).to_contain_text("10/s$5/h2/2")
        with Client(instance.url) as client:
            client.delete("planned")

    @pytest.mark.slow
    def test_a_proposal_has_its_benefit_and_its_cost_and_is_approved(
        self, console: OpenConsole, instance: CliInstance
    ) -> None:
        cells = cell(1, {"EL": 1}, count=1, rate=0.5), cell(2, {"EL": 2}, rate=2.0)
        settings = AdaptationSettings(approval=True, max_rate=2.0, window_seconds=2, dwell_seconds=0)
        policies = AppPolicies(adaptation=settings)
        spec = AppSpec(source=AppSource(inline=PLANNED), plan=plan(*cells), policies=policies)
        with Client(instance.url) as client:
            client.deploy(spec, name="planned")
            page = console.show("apps/planned")
            proposal = page.get_by_role("region", name="Proposal: other cells")
            with _requests_to("planned", instance):  # Without them, the proposal is withdrawn.
                for figure in ("Benefit0.5/s to 2/s", "Cost1 GPU to 2 GPUs"):
                    expect(proposal.locator(".figure", has_text=figure)).to_be_visible()
                assert _violations(page) == []
                proposal.get_by_role("button", name="Approve…").click()
                assert _violations(page) == []
                page.get_by_role("dialog").get_by_role("button", name="Approve").click()
                expect(page.get_by_role("dialog")).to_have_count(0)

            expect(page.get_by_role("region", name="Cells").get_by_role("row").nth(1)).to_contain_text("2/s$5/h2/2")
            expect(proposal).to_have_count(0)
            page = console.show("deploy")
            page.get_by_label("Name of the app").fill("planned")
            page.get_by_label("Model: ").fill("a")
            page.get_by_role("button", name="Deploy…").click()
            expect(page.get_by_role("dialog").get_by_text("The app loses")).to_contain_text(
                "the plan, the adaptation to the load."
            )
            client.delete("planned")

    @pytest.mark.slow
    def test_logs_are_followed(self, console: OpenConsole, instance: CliInstance) -> None:
        page = console.show("apps/chatter/logs")
        expect(page.get_by_role("heading", name="Logs")).to_be_visible()
        page.evaluate("window.loaded = 1")
        body = {"model": "chatter", "messages": [{"role": "user", "content": "hello"}]}
        headers = {"authorization": f"Bearer {TOKEN}", "x-request-id": "request-of-the-log"}
        httpx.post(f"{instance.url}/v1/chat/completions", json=body, headers=headers, timeout=60, trust_env=False)

        replicas = page.get_by_label("Replica")
        replicas.select_option(replicas.locator("option", has_text="gateway").inner_text())
        page.get_by_role("searchbox").fill("request-of-the-log")
        expect(page.get_by_role("log")).to_contain_text("log line")
        assert page.evaluate("window.loaded") == 1

    @pytest.mark.slow
    def test_times_of_other_days_have_their_date(self, console: OpenConsole) -> None:
        midnight = datetime(2026, 3, 4, 0, 5).astimezone()
        times = None, (midnight - timedelta(days=1)).isoformat(), midnight.isoformat()
        event = {"type": "Normal", "reason": "Ready", "object": "a", "message": "b", "count": 1}
        document = {"events": [event | {"time": time} for time in times]}
        console.page.clock.set_fixed_time(midnight + timedelta(hours=12))
        console.page.route("**/history", lambda route: route.fulfill(json=document))

        shown = console.show("apps/chatter/logs").locator(".events time")
        expect(shown).to_have_text(["00:05:00", "Mar 3, 2026, 00:05:00", "–"])

    @pytest.mark.slow
    def test_the_stages_of_a_request_have_phases(self, console: OpenConsole, instance: CliInstance) -> None:
        with Client(instance.url) as client:
            client.complete("chatter", [{"role": "user", "content": "one two"}])
        page = console.show("apps/chatter/requests")
        page.get_by_role("region", name="Requests").get_by_role("link").first.click()

        stage = page.get_by_role("list", name="Stages").get_by_role("listitem").filter(has_text="EchoTask")
        expect(stage).to_contain_text("compute")
        expect(stage).to_contain_text("streamed output")

    @pytest.mark.slow
    def test_failed_and_slow_requests_have_lists(self, console: OpenConsole, instance: CliInstance) -> None:
        with Client(instance.url) as client:
            client.complete("chatter", [{"role": "user", "content": "hello"}])
            with pytest.raises(ClientError):
                client.complete("chatter", [{"role": "user", "content": "fail"}])
        page = console.show("apps/chatter/requests")
        rows = page.get_by_role("region", name="Requests").locator("tbody tr")

        page.get_by_label("failed").check()
        expect(rows.first.locator(".bad")).to_have_text("500")
        page.get_by_label("slow").check()
        expect(rows.first).to_be_visible()
        expect(rows.locator(".bad")).to_have_count(0)

    @pytest.mark.slow
    def test_a_killed_executor_is_shown_within_two_seconds(self, console: OpenConsole, instance: CliInstance) -> None:
        page = console.show("apps/tape")
        expect(page.locator("[data-group]")).to_have_attribute("data-ready", "2")
        page.evaluate(RECORD_KILL)
        seconds: list[float] = []
        while not seconds or (min(seconds) > 2 and len(seconds) < 3):  # Other tests may use all cores.
            page.evaluate("window.watch()")
            page.get_by_role("button", name="Kill a replica…").click()
            page.get_by_role("dialog").get_by_role("button", name="Kill").click()
            expect(page.get_by_role("dialog")).to_have_count(0)
            wait_until(lambda: page.evaluate("window.shown") is not None)
            seconds.append(page.evaluate("(window.shown - window.killed) / 1000"))
            expect(page.locator("[data-group]")).to_have_attribute("data-ready", "2")

        assert min(seconds) <= 2

    @pytest.mark.slow
    @pytest.mark.usefixtures("all_views")
    def test_the_tab_key_reaches_every_control(self, console: OpenConsole) -> None:
        unreached: dict[str, list[str]] = {}
        for view in VIEWS:
            page = console.show(view)
            _wait_for(page)
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
    def test_all_views_are_accessible(self, console: OpenConsole, scheme: str) -> None:
        console.page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        violations = {view: _violations(console.show(view)) for view in VIEWS}

        assert not any(violations.values()), violations

    @pytest.mark.slow
    @pytest.mark.usefixtures("all_views")
    @pytest.mark.parametrize("width", [360, 800, 1280, 2560])
    def test_no_view_is_wider_than_the_window(self, console: OpenConsole, width: int) -> None:
        console.page.set_viewport_size({"width": width, "height": 800})
        widths = {}
        for view in VIEWS:
            _wait_for(console.show(view))
            widths[view] = console.page.evaluate("document.documentElement.scrollWidth")

        assert widths == dict.fromkeys(VIEWS, width)

    @pytest.mark.slow
    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_the_sign_in_is_accessible_and_fits(self, stranger: OpenConsole, scheme: str) -> None:
        stranger.page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        stranger.page.set_viewport_size({"width": 360, "height": 800})

        assert _violations(stranger.show()) == []
        assert stranger.page.evaluate("document.documentElement.scrollWidth") == 360

    @pytest.mark.slow
    @pytest.mark.parametrize("id", [".", "..", "../apps/chatter", "a//b", "/", "%2e%2e", "x" * 200])
    def test_an_unknown_id_of_a_request_is_refused(self, console: OpenConsole, id: str) -> None:
        page = console.show(f"requests/{quote(id, safe='')}")

        expect(page.get_by_role("alert")).to_contain_text(re.compile("the request is unknown|id: must"))
        expect(page.get_by_role("heading", level=1)).to_have_text(f"Request {id}")

    @pytest.mark.slow
    def test_a_request_has_a_timeline_by_an_id_that_looks_like_a_path(
        self, console: OpenConsole, instance: CliInstance
    ) -> None:
        body = {"model": "chatter", "messages": [{"role": "user", "content": "hello"}]}
        headers = {"authorization": f"Bearer {TOKEN}", "x-request-id": "../of/the/client"}
        httpx.post(f"{instance.url}/v1/chat/completions", json=body, headers=headers, timeout=60, trust_env=False)
        page = console.show("requests")
        page.get_by_role("region", name="Requests").get_by_role("link", name="../of/the/client").first.click()

        expect(page.get_by_role("list", name="Stages").get_by_role("listitem").first).to_be_visible()


class TestChanges:
    def test_the_keyboard_scales_an_app_after_a_confirmation(self, console: OpenConsole, instance: CliInstance) -> None:
        page = console.show("apps/hummer")
        scale = page.get_by_role("button", name="Scale…")

        scale.press("Enter")
        expect(page.get_by_role("dialog")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
        scale.press("Enter")
        page.get_by_role("dialog").get_by_label("Replicas").fill("1")
        page.keyboard.press("Enter")

        expect(page.get_by_role("dialog")).to_have_count(0)
        with Client(instance.url) as client:
            wait_until(lambda: client.app("hummer").spec.replicas == 1)

    @pytest.mark.slow
    def test_an_app_is_deployed_restarted_and_deleted(self, console: OpenConsole, instance: CliInstance) -> None:
        page = console.show("deploy")

        page.get_by_label("the source of an app").check()
        page.get_by_label("Name of the app").fill("fleeting")
        page.get_by_label("Source: ").fill(
            "from cornserve import App\nfrom cornserve_echo import EchoTask\n"
            "app = App(name='fleeting', paths=[EchoTask()])"
        )
        page.get_by_role("button", name="Deploy…").click()
        page.get_by_role("dialog").get_by_role("button", name="Deploy").click()
        expect(page.get_by_role("heading", name="fleeting")).to_be_visible()
        page.get_by_role("button", name="Restart…").click()
        page.get_by_role("dialog").get_by_role("button", name="Restart").click()
        expect(page.get_by_role("dialog")).to_have_count(0)
        with Client(instance.url) as client:
            assert client.app("fleeting").generation == 2
        page.get_by_role("button", name="Delete…").click()
        dialog = page.get_by_role("dialog")
        expect(dialog.get_by_role("button", name="Delete")).to_be_disabled()
        dialog.get_by_label("to confirm").fill("fleeting")
        dialog.get_by_role("button", name="Delete").click()

        expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        expect(page.get_by_role("row", name="fleeting")).to_have_count(0)


class TestPlayground:
    def test_a_chat_is_rendered_while_it_arrives(self, console: OpenConsole) -> None:
        page = console.show("playground/chatter")
        page.get_by_label("System message").fill("slowly")
        _record_answer(page)
        _send(page, "one two three four")

        _wait_for_answer(page)
        texts = _recorded_texts(page)
        assert any("one" in text and "four" not in text for text in texts)
        assert "one two three four" in texts[-1]

    @pytest.mark.slow
    def test_an_image_has_its_steps_and_previews_although_the_app_ignores_their_number(
        self, console: OpenConsole
    ) -> None:
        page = console.show("playground/sketcher")
        _record_answer(page)
        _send(page, "a square", "What to draw")

        _wait_for_answer(page)
        previews = set(page.evaluate("window.images"))
        assert len(previews) > 1
        assert any("Step 1 of 3" in text for text in _recorded_texts(page))
        expect(page.locator(".answer img")).to_have_count(1)
        expect(page.locator(".answer").get_by_role("alert")).to_have_count(0)
        page.get_by_text("The last request as code").click()
        expect(page.get_by_label("curl", exact=True)).not_to_contain_text("partial_images")

    @pytest.mark.slow
    def test_a_field_that_the_user_has_chosen_is_not_left_out(self, console: OpenConsole) -> None:
        page = console.show("playground/sketcher")
        page.get_by_label("Previews").fill("2")
        _send(page, "a square", "What to draw")

        expect(page.locator(".answer").get_by_role("alert")).to_contain_text("no use of 'partial_images'")

    @pytest.mark.slow
    def test_speech_is_played_while_it_arrives(self, console: OpenConsole) -> None:
        page = console.show("playground/hummer")
        _record_speech(page)
        _record_answer(page)
        _send(page, "one two three", "Text to speak")

        _wait_for_answer(page)
        assert any("500 ms of speech" in text for text in _recorded_texts(page))
        assert page.evaluate("window.played") == [0.5, 0.5, 0.5]
        assert _duration(page) == pytest.approx(1.5)

    @pytest.mark.slow
    def test_an_audio_file_is_played_if_the_app_sends_no_samples(self, console: OpenConsole) -> None:
        page = console.show("playground/tape")
        _send(page, "one", "Text to speak")

        _wait_for_answer(page)
        assert _duration(page) == pytest.approx(1)

    @pytest.mark.slow
    def test_apps_answer_next_to_each_other(self, console: OpenConsole) -> None:
        page = console.show("playground/chatter")
        page.get_by_label("Invoke with JSON").check()
        page.get_by_label("sketcher").check()
        _send(page, '{"messages": [{"role": "user", "content": "hello"}]}', "Request as JSON")

        expect(page.get_by_label("Conversation with chatter")).to_contain_text("hello")
        expect(page.get_by_label("Conversation with sketcher").get_by_role("alert")).to_contain_text("messages")

    @pytest.mark.slow
    @pytest.mark.parametrize("media", [PNG, WAV, MP4], ids=["image", "audio", "video"])
    def test_a_message_has_media(self, console: OpenConsole, media: FilePayload) -> None:
        page = console.show("playground/chatter")
        page.get_by_label("Files").set_input_files(media)
        expect(page.get_by_role("button", name=f"Remove {media['name']}")).to_be_visible()
        _send(page, "hello")

        expect(page.locator(".answer")).to_contain_text("media hello")
        page.get_by_text("The last request as code").click()
        expect(page.get_by_label("curl", exact=True)).to_contain_text(f"$(base64 -w0 '{media['name']}')")

    @pytest.mark.slow
    def test_a_file_is_transcribed(self, console: OpenConsole) -> None:
        page = console.show("playground/scribe")
        page.get_by_label("Files").set_input_files(WAV)
        page.get_by_role("button", name="Send").click()

        expect(page.locator(".answer")).to_contain_text("WAV 1")

    @pytest.mark.slow
    def test_another_file_replaces_the_one_to_transcribe(self, console: OpenConsole, tmp_path: Path) -> None:
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
        assert "WAV 2" in _output(page, "curl", tmp_path)

    @pytest.mark.slow
    def test_the_code_of_a_form_does_not_change_its_texts(self, console: OpenConsole) -> None:
        def edit_images(overview: Any) -> Any:
            return overview | {"apps": [app | {"operations": ["image editing"]} for app in overview["apps"]]}

        console.page.route("**/admin/v1/overview", lambda route: _answer(route, edit_images))
        page = console.show("playground/sketcher")
        page.get_by_label("Files").set_input_files(PNG)
        _send(page, '@secret;type="a"', "What to change")

        page.get_by_text("The last request as code").click()
        expect(page.get_by_label("curl", exact=True)).to_contain_text("""--form-string 'prompt=@secret;type="a"'""")

    @pytest.mark.slow
    def test_a_spoken_response_has_its_text_and_its_speech(self, console: OpenConsole) -> None:
        page = console.show("playground/speaking-parrot")
        page.get_by_label("Spoken response").check()
        page.get_by_label("Voice").fill("ethan")
        _send(page, "hello there")

        expect(page.locator(".answer")).to_contain_text("hello there")
        expect(page.locator("audio")).to_be_visible()

        page.get_by_role("checkbox", name="speaking-parrot").uncheck()
        page.get_by_role("checkbox", name="chatter").check()
        expect(page.get_by_label("Voice")).to_have_count(0)
        _send(page, "in writing")
        expect(page.locator(".answer")).to_contain_text("in writing")
        expect(page.get_by_role("alert")).to_have_count(0)

    @pytest.mark.slow
    def test_the_code_of_the_last_request_gets_the_same_answer(self, console: OpenConsole, tmp_path: Path) -> None:
        page = console.show("playground/chatter")
        _send(page, 'it\'s "five" $HOME `six`')
        _wait_for_answer(page)
        page.get_by_text("The last request as code").click()

        printed = _output(page, "curl", tmp_path)
        for word in ("it's", "$HOME", "`six`"):
            assert f'{word} "' in printed
        assert _output(page, "Python", tmp_path).strip() == 'it\'s "five" $HOME `six`'

    @pytest.mark.slow
    def test_the_code_of_a_chat_reads_all_its_files(self, console: OpenConsole, tmp_path: Path) -> None:
        page = console.show("playground/chatter")
        (tmp_path / PNG["name"]).write_bytes(PNG["buffer"])
        (tmp_path / WAV["name"]).write_bytes(WAV["buffer"])
        for media, text in ((PNG, "first"), (WAV, "it's `two` $HOME \\n " + "x" * 150_000)):
            page.get_by_label("Files").set_input_files(media)
            expect(page.get_by_role("button", name=f"Remove {media['name']}")).to_be_visible()
            _send(page, text)
            expect(page.locator(".answer").last).to_have_attribute("aria-busy", "false")
        assert page.get_by_label("curl", exact=True).count() == 0
        page.get_by_text("The last request as code").click()

        for media in (PNG, WAV):
            for language in ("curl", "Python"):
                expect(page.get_by_label(language, exact=True)).to_contain_text(media["name"])
        assert '$HOME "' in _output(page, "curl", tmp_path)
        assert "media it's `two` $HOME \\n xxx" in _output(page, "Python", tmp_path)

    @pytest.mark.slow
    def test_an_integer_is_sent_as_it_is_written(self, console: OpenConsole, tmp_path: Path) -> None:
        page = console.show("playground/chatter")
        page.get_by_label("Invoke with JSON").check()
        document = '{"messages": [{"role": "user", "content": "hello"}], "seed": 9007199254740993}'
        with page.expect_request("**/invoke") as sent:
            _send(page, document, "Request as JSON")

        assert sent.value.post_data == document
        _wait_for_answer(page)
        page.get_by_text("The last request as code").click()
        expect(page.get_by_label("curl", exact=True)).to_contain_text(document)
        assert "'finish_reason': 'stop'" in _output(page, "Python", tmp_path)

    def test_the_keyboard_does_not_send_a_wrong_field(self, console: OpenConsole) -> None:
        page = console.show("playground/chatter")
        temperature = page.get_by_label("Temperature")
        temperature.fill("9")
        _send(page, "hello")
        expect(temperature).to_be_focused()
        temperature.fill("1")
        _send(page, "hello")

        expect(page.locator(".answer")).to_have_count(1)

    def test_an_app_that_is_not_served_is_named(self, console: OpenConsole) -> None:
        page = console.show("playground/unknown")

        expect(page.get_by_role("alert")).to_have_text("The app unknown is not served.")
        expect(page.get_by_role("button", name="Send")).to_be_disabled()

    @pytest.mark.slow
    def test_five_apps_answer_at_most_because_browsers_open_six_connections(self, console: OpenConsole) -> None:
        page = console.show("playground/chatter")
        page.get_by_label("Invoke with JSON").check()
        for name in ("hummer", "scribe", "sketcher", "speaking-parrot"):
            page.get_by_role("checkbox", name=name).check()

        last = page.get_by_role("checkbox", name="tape")
        expect(last).to_be_disabled()
        page.get_by_role("checkbox", name="hummer").uncheck()
        expect(last).to_be_enabled()


class TestPathPrefix:
    @pytest.mark.slow
    def test_a_proxy_serves_the_page_below_a_prefix(
        self, context: BrowserContext, instance: CliInstance, tmp_path: Path
    ) -> None:
        with ingress_proxy(rewriting_ingress(f"{PREFIX}(/|$)(.*)"), instance.url, tmp_path) as address:
            url = f"{address}{PREFIX}"
            page, problems = context.new_page(), PageProblems(url, [])
            problems.watch(page)
            page.goto(f"{url}/console")
            page.get_by_label("Admin token").fill(TOKEN)
            page.keyboard.press("Enter")
            page.get_by_role("row", name="chatter").get_by_role("link").click()
            expect(page.locator("[data-group]")).to_have_count(1)
            page.get_by_role("navigation", name="Views of chatter").get_by_role("link", name="Playground").click()
            _send(page, "hello")
            expect(page.locator(".answer")).to_contain_text("hello")
            page.get_by_text("The last request as code").click()
            expect(page.get_by_label("curl", exact=True)).to_contain_text(f"{url}/v1/chat/completions")
            page.close()

        assert problems.found == []
        assert [cookie["path"] for cookie in context.cookies()] == [f"{PREFIX}/console"]


class TestHostileTexts:
    @pytest.mark.slow
    @pytest.mark.usefixtures("all_views")
    def test_no_text_of_a_document_is_run_in_any_view(self, console: OpenConsole) -> None:
        console.page.add_init_script(WITHOUT_SHARED_WORKERS)
        console.page.route("**/admin/v1/**", lambda route: _answer(route, _hostile))

        for view in VIEWS:
            page = console.show(view)
            if view != "deploy":  # It reads no document.
                expect(page.get_by_text(HOSTILE).first).to_be_attached()
            _wait_for(page)
            assert page.locator("img[src=x]").count() == 0
        console.page.unroute_all(behavior="wait")

    @pytest.mark.slow
    @pytest.mark.usefixtures("all_views")
    def test_no_error_of_the_gateway_is_run_in_any_view(self, console: OpenConsole) -> None:
        error = {"message": HOSTILE, "code": HOSTILE, "param": HOSTILE, "type": HOSTILE}
        console.page.add_init_script(WITHOUT_SHARED_WORKERS)
        console.page.route("**/admin/v1/**", lambda route: route.fulfill(status=500, json={"error": error}))

        for view in VIEWS:
            page = console.show(view)
            if view == "deploy":
                page.get_by_label("Name of the app").fill("a")
                page.get_by_label("Model: ").fill("b")
                page.get_by_role("button", name="Deploy…").click()
            expect(page.get_by_role("alert").first).to_have_text(HOSTILE)
            assert page.locator("img").count() == 0

    @pytest.mark.slow
    def test_texts_of_messages_errors_and_logs_are_not_run(self, console: OpenConsole) -> None:
        page = console.show("playground/chatter")
        page.get_by_label("Files").set_input_files(HOSTILE_WAV)
        expect(page.get_by_role("button", name=f"Remove {HOSTILE}")).to_be_visible()
        _send(page, HOSTILE)
        expect(page.locator(".answer")).to_contain_text(HOSTILE)
        page.get_by_text("The last request as code").click()
        expect(page.get_by_label("curl", exact=True)).to_contain_text(HOSTILE)
        _send(page, "fail")
        expect(page.locator(".answer").last.get_by_role("alert")).to_contain_text(HOSTILE)

        page = console.show("apps/chatter/logs")
        replicas = page.get_by_label("Replica")
        replicas.select_option(replicas.locator("option").first.inner_text())
        expect(page.get_by_role("log")).to_contain_text(f"log line {HOSTILE}")
        expect(page.locator("img")).to_have_count(0)

    @pytest.mark.slow
    def test_names_of_apps_and_models_are_not_run(self, console: OpenConsole) -> None:
        page = console.show("deploy")
        page.get_by_label("Name of the app").fill(HOSTILE)
        page.get_by_label("Model: ").fill(HOSTILE)
        page.get_by_role("button", name="Deploy…").click()
        dialog = page.get_by_role("dialog")
        expect(dialog.get_by_role("heading")).to_contain_text(HOSTILE)
        dialog.get_by_role("button", name="Deploy").click()
        expect(dialog.get_by_role("alert")).to_be_visible()

        expect(page.locator("img")).to_have_count(0)


@contextmanager
def _requests_to(app: str, instance: CliInstance, **fields: int) -> Iterator[None]:
    """Sends requests with a text and further fields to an app, one after the other, during the block."""
    ended = Event()

    def send() -> None:
        with Client(instance.url) as client:
            while not ended.is_set():
                client.invoke(app, {"text": "a", **fields})

    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(send)
        try:
            yield
        finally:
            ended.set()
    sending.result()


def _send(page: Page, text: str, label: str = "Message") -> None:
    page.get_by_label(label, exact=True).fill(text)
    page.get_by_label(label, exact=True).press("Control+Enter")


def _wait_for_answer(page: Page) -> None:
    expect(page.locator(".answer")).to_have_attribute("aria-busy", "false")


def _output(page: Page, language: str, directory: Path) -> str:
    """Returns the output of the last request as code, which runs in a directory."""
    code = directory / "code"
    code.write_text(page.get_by_label(language, exact=True).inner_text())
    command = ["bash" if language == "curl" else sys.executable, str(code)]
    return subprocess.run(command, cwd=directory, check=True, capture_output=True, text=True).stdout


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


def _wait_for(page: Page) -> None:
    """Waits until the view has read its documents."""
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    expect(page.get_by_text("Reading…")).to_have_count(0)


def _violations(page: Page) -> list[str]:
    _wait_for(page)
    found = Axe().run(page).response["violations"]
    return [f"{violation['id']}: {violation['nodes'][0]['html']}" for violation in found]


def _columns(page: Page, region: str, names: int, counts: int) -> dict[str, int]:
    """Returns the counts of a table by the names of its rows.

    Args:
        names: the number of the column of the names.
        counts: that of the counts.
    """
    rows = page.get_by_role("region", name=region, exact=True).locator("tbody tr")
    texts: list[list[str]] = rows.evaluate_all("rows => rows.map(row => [...row.cells].map(cell => cell.innerText))")
    return {row[names]: int(row[counts]) for row in texts}


def _cells(app: dict[str, Any]) -> list[str]:
    """Returns the row of an app without targets in the overview."""
    return [
        app["phase"],
        f"{app['ready']}/{app['wanted']}",
        _number(app["gpus"]),
        f"{_number(app['requests_per_second'])}/s",
        _number(app["running"]),
        _median_and_tail(app["ttft_seconds"]),
        _median_and_tail(app["tbt_seconds"]),
        f"{_number(app['generation_tokens_per_second'])}/s",
        "",
        f"{_number(app['errors_total'])} of {_number(app['requests_total'])}",
    ]


def _number(value: float, digits: int = 2) -> str:
    """Rounds half away from zero, as `Intl.NumberFormat` does."""
    unit = Decimal(1).scaleb(0 if value >= 100 else -digits)
    text = f"{Decimal(str(value)).quantize(unit, ROUND_HALF_UP):,f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _median_and_tail(percentiles: dict[str, float] | None) -> str:
    if percentiles is None:
        return "–"
    return " / ".join(
        f"{_number(1000 * value, 1 if value < 0.01 else 0)} ms" if value < 1 else f"{_number(value)} s"
        for value in (percentiles["p50"], percentiles["p99"])
    )


def _samples(instance: CliInstance, name: str, by: str, **labels: str) -> Counter[str]:
    """Returns the sums of a metric of the gateway by a label."""
    headers = {"authorization": f"Bearer {TOKEN}"}
    text = httpx.get(f"{instance.url}/metrics", headers=headers, trust_env=False).text
    sums = Counter[str]()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == f"cornserve_gateway_{name}" and labels.items() <= sample.labels.items():
                sums[sample.labels[by]] += round(sample.value)
    return sums


def _errors_of_requests(instance: CliInstance, app: str) -> str:
    """Returns what the console shows about the requests that the metrics have counted."""
    statuses = _samples(instance, "requests_total", "status", app=app)
    errors = sum(count for status, count in statuses.items() if int(status) >= 500)
    return f"{errors} of {statuses.total()}"


def _answer(route: Route, change: Callable[[Any], Any]) -> None:
    """Answers a request of the page with a changed document. A stream has one event."""
    path, is_stream = re.subn(r"/(live|overview)/events$", r"/\1", route.request.url)
    response = route.fetch(url=path)
    document = change(response.json())
    if is_stream:
        name = path.rsplit("/", maxsplit=1)[1]
        route.fulfill(content_type="text/event-stream", body=f"event: {name}\ndata: {json.dumps(document)}\n\n")
    else:
        route.fulfill(status=response.status, json=document)


def _hostile(value: Any, name: str = "") -> Any:
    """Returns a document in which each text begins with `HOSTILE`, also those that are keys of a field `name`."""
    if isinstance(value, str):
        return HOSTILE + value
    if isinstance(value, list):
        return [_hostile(each) for each in value]
    if isinstance(value, dict):
        has_names = name not in ("kinds", "codes", "statuses", "received_bytes_total")
        return {key if has_names else HOSTILE + key: _hostile(each, key) for key, each in value.items()}
    return value
