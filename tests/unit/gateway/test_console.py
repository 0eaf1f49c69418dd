"""The web console: its files, sign-in, and the requests of signed-in browsers."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
import pytest_asyncio

from cornserve.access import Access
from cornserve.gateway.console import session_guard, sessions
from cornserve.gateway.console.sessions import SESSION_SECONDS, BrowserSessions, Role
from cornserve.instance_secret import InstanceSecret
from tests.credentials import CREDENTIALS
from tests.unit.echo_executors import EchoExecutors
from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.raw_http import post, raw_connection
from tests.unit.gateway.running_gateway import GatewayOptions, with_gateway_options
from tests.unit.gateway.sources import ECHO, SPEAKER
from tests.waiting import until

TOKEN, READER, KEY = "t" * 32, "r" * 32, "k" * 16
CHANGE = {"x-cornserve-console": "1"}
FOREIGN = [
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"origin": "https://page.example"},
    {"origin": "null"},
    {"origin": "http://127.0.0.1:1"},
]


@pytest.fixture(autouse=True)
def forgotten_cookies(gateway: httpx.AsyncClient) -> None:
    """The client of the module would keep the cookies of earlier tests."""
    gateway.cookies.clear()


async def sign_in(gateway: httpx.AsyncClient, token: str = TOKEN, **headers: str) -> dict[str, str]:
    """Returns the header with the cookie of a session."""
    response = await gateway.post("/console/session", json={"token": token}, headers=CHANGE | headers)
    assert response.status_code == 200
    gateway.cookies.clear()
    return {"cookie": response.headers["set-cookie"].partition(";")[0]}


@with_gateway_options(GatewayOptions(access=Access((KEY,), TOKEN, READER)))
class TestWithTokens:
    async def test_the_page_needs_no_session(self, gateway: httpx.AsyncClient) -> None:
        page = await gateway.get("/console/")

        assert page.status_code == 200
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert page.headers["content-encoding"] == "gzip"
        assert "<script>" not in page.text

    async def test_all_addresses_of_the_page_are_relative(self, gateway: httpx.AsyncClient) -> None:
        redirect = await gateway.get("/console")

        assert (redirect.status_code, redirect.headers["location"]) == (307, "console/")
        page = (await gateway.get("/console/")).text
        for attribute in ('src="/', 'href="/', "http:", "https:"):
            assert attribute not in page

    @pytest.mark.parametrize("path", ["/console/", "/console/session", "/console/nothing", "/console/admin/v1/apps"])
    async def test_every_response_forbids_scripts_of_others(self, gateway: httpx.AsyncClient, path: str) -> None:
        headers = (await gateway.get(path)).headers

        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"

    async def test_unchanged_files_are_not_sent_again(self, gateway: httpx.AsyncClient) -> None:
        etag = (await gateway.get("/console/")).headers["etag"]

        again = await gateway.get("/console/", headers={"if-none-match": etag})

        assert (again.status_code, again.content) == (304, b"")

    @pytest.mark.parametrize(
        "path",
        [
            "../access.py", "assets/%2e%2e/%2e%2e/middleware.py", "..%2fmiddleware.py", "%2fetc%2fpasswd",
            "/etc/passwd", "assets", "assets/", "x", "%00", "x%00.js", "%ff", "x" * 5000,
        ],
    )  # fmt: skip
    async def test_other_files_are_not_served(self, gateway: httpx.AsyncClient, path: str) -> None:
        refused = await gateway.get(f"/console/{path}")

        assert refused.status_code in (401, 404)
        assert refused.json()["error"]["message"]

    async def test_files_are_only_read(self, gateway: httpx.AsyncClient) -> None:
        refused = await gateway.post("/console/", headers=CHANGE)

        assert (refused.status_code, refused.json()["error"]["message"]) == (405, "the console has no method POST")

    async def test_files_with_a_digest_in_their_names_are_kept_by_browsers(self, gateway: httpx.AsyncClient) -> None:
        page = await gateway.get("/console/")
        script = page.text.split('src="./')[1].split('"')[0]
        found = [await gateway.request(method, f"/console/{script}") for method in ("GET", "HEAD")]

        assert page.headers["cache-control"] == "no-cache"
        for each in found:
            assert each.headers["cache-control"] == "public, max-age=31536000, immutable"
            assert each.headers["content-type"].startswith(("text/javascript", "application/javascript"))
        assert found[1].content == b""

    async def test_without_a_session_only_the_sign_in_is_shown(self, gateway: httpx.AsyncClient) -> None:
        assert (await gateway.get("/console/session")).json() == {
            "role": None,
            "needs_token": True,
            "expires": None,
            "version": None,
        }
        for path in ("/console/admin/v1/apps", "/console/v1/models", "/console/admin/v1/nothing"):
            refused = await gateway.get(path)
            assert (refused.status_code, refused.json()["error"]["code"]) == (401, "not_signed_in")
            assert (await gateway.get(path, headers={"authorization": f"Bearer {TOKEN}"})).status_code == 401

    async def test_the_admin_token_signs_in(self, gateway: httpx.AsyncClient) -> None:
        response = await gateway.post("/console/session", json={"token": TOKEN}, headers=CHANGE)

        cookie = response.headers["set-cookie"]
        assert all(flag in cookie for flag in ("HttpOnly", "SameSite=Strict", f"Max-Age={SESSION_SECONDS}"))
        assert "Path" not in cookie  # a proxy may add a prefix
        assert "Secure" not in cookie
        assert TOKEN not in cookie
        session = response.json()
        assert (session["role"], session["needs_token"]) == ("admin", True)
        assert session["expires"] == pytest.approx(time.time() + SESSION_SECONDS, abs=60)

    async def test_a_cookie_is_only_sent_encrypted_if_the_page_was(self, gateway: httpx.AsyncClient) -> None:
        headers = CHANGE | {"origin": "https://cornserve.example", "host": "cornserve.example"}

        response = await gateway.post("/console/session", json={"token": TOKEN}, headers=headers)

        assert "; Secure" in response.headers["set-cookie"]

    async def test_a_session_reads_and_changes_by_the_api(self, gateway: httpx.AsyncClient) -> None:
        session = await sign_in(gateway)

        assert (await gateway.get("/console/admin/v1/apps", headers=session)).json()["apps"] == []
        assert (await gateway.get("/console/v1/models", headers=session)).json()["data"] == []
        deleted = await gateway.delete("/console/admin/v1/apps/none", headers=session | CHANGE)
        assert deleted.json()["error"]["code"] == "app_not_found"
        called = await gateway.post("/console/v1/chat/completions", json={"model": "x"}, headers=session | CHANGE)
        assert called.status_code in (400, 404)

    async def test_the_cookie_is_not_valid_outside_of_the_console(self, gateway: httpx.AsyncClient) -> None:
        session = await sign_in(gateway)

        assert (await gateway.get("/admin/v1/apps", headers=session)).status_code == 401
        assert (await gateway.get("/console/internal/v1/arrivals", headers=session)).status_code == 404

    async def test_a_read_only_session_changes_nothing(self, gateway: httpx.AsyncClient) -> None:
        session = await sign_in(gateway, READER)

        assert (await gateway.get("/console/session", headers=session)).json()["role"] == "viewer"
        assert (await gateway.get("/console/admin/v1/apps", headers=session)).status_code == 200
        for method, path in (
            ("DELETE", "admin/v1/apps/x"),
            ("POST", "v1/chat/completions"),
            ("PUT", "admin/v1/apps/x"),
        ):
            refused = await gateway.request(method, f"/console/{path}", headers=session | CHANGE, json={})
            assert (refused.status_code, refused.json()["error"]["code"]) == (403, "read_only")

    @pytest.mark.parametrize("headers", FOREIGN)
    async def test_pages_of_other_sites_cannot_use_a_session(
        self, gateway: httpx.AsyncClient, headers: dict[str, str]
    ) -> None:
        session = await sign_in(gateway)

        for method in ("GET", "POST", "DELETE"):
            refused = await gateway.request(method, "/console/admin/v1/apps", headers=session | CHANGE | headers)
            assert (refused.status_code, refused.json()["error"]["code"]) == (403, "cross_site")

    async def test_a_change_needs_the_header_of_the_page(self, gateway: httpx.AsyncClient) -> None:
        session = await sign_in(gateway)

        for method, path in (("DELETE", "admin/v1/apps/x"), ("POST", "session"), ("DELETE", "session")):
            refused = await gateway.request(method, f"/console/{path}", headers=session, json={"token": TOKEN})
            assert (refused.status_code, refused.json()["error"]["code"]) == (403, "cross_site")

    async def test_signing_out_deletes_the_cookie(self, gateway: httpx.AsyncClient) -> None:
        session = await sign_in(gateway)
        response = await gateway.delete("/console/session", headers=session | CHANGE)

        assert response.status_code == 204
        name = session["cookie"].partition("=")[0]
        assert response.headers["set-cookie"].startswith(f"{name}=; Max-Age=0")

    @pytest.mark.parametrize("token", ["", "x", KEY, TOKEN + "x", "ü" * 32, "\x00", "<script>alert(1)</script>"])
    async def test_other_tokens_are_rejected(self, gateway: httpx.AsyncClient, token: str) -> None:
        response = await gateway.post("/console/session", json={"token": token}, headers=CHANGE)

        assert (response.status_code, response.json()["error"]["code"]) == (401, "invalid_token")
        assert "set-cookie" not in response.headers

    @pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"token": 1}', b'{"token": "x", "y": 1}', b"\xff"])
    async def test_a_malformed_sign_in_is_rejected(self, gateway: httpx.AsyncClient, body: bytes) -> None:
        assert (await gateway.post("/console/session", content=body, headers=CHANGE)).status_code == 400

    async def test_a_long_sign_in_is_rejected(self, gateway: httpx.AsyncClient) -> None:
        long = b'{"token": "%s"}' % (b"x" * 5000)

        assert (await gateway.post("/console/session", content=long, headers=CHANGE)).status_code == 413

    @pytest.mark.parametrize(
        "cookie", ["", "x", "admin.9999999999.0.00", "admin", "viewer..", "=;=", 'cornserve_console="', "admin.x.y.z"]
    )
    async def test_forged_cookies_are_rejected(self, gateway: httpx.AsyncClient, cookie: str) -> None:
        name = (await sign_in(gateway))["cookie"].partition("=")[0]
        for header in (cookie, f"{name}={cookie}"):
            assert (await gateway.get("/console/admin/v1/apps", headers={"cookie": header})).status_code == 401

    @pytest.mark.parametrize("other", ['a={"b": [1]}', "a b=c", "x=\xff", "=", "cornserve_console_00000000=admin"])
    async def test_cookies_of_other_programs_do_not_sign_out(self, gateway: httpx.AsyncClient, other: str) -> None:
        cookie = (await sign_in(gateway))["cookie"]
        for header in (f"{other}; {cookie}", f"{cookie}; {other}"):
            response = await gateway.get("/console/admin/v1/apps", headers={b"cookie": header.encode("latin-1")})
            assert response.status_code == 200

    async def test_a_viewer_cannot_change_the_role_in_the_cookie(self, gateway: httpx.AsyncClient) -> None:
        cookie = (await sign_in(gateway, READER))["cookie"].replace("viewer", "admin")

        assert (await gateway.get("/console/admin/v1/apps", headers={"cookie": cookie})).status_code == 401


SPEECH = "/console/v1/audio/speech"
INVOKE, SLOW = "/console/v1/apps/echo/invoke", {"text": "word " * 1000, "seconds": 100}
STREAMS = [
    pytest.param("GET", "/console/admin/v1/overview/events", None, id="overview"),
    pytest.param("GET", "/console/admin/v1/apps/echo/events", None, id="app"),
    pytest.param("POST", INVOKE, SLOW, id="model"),
]


@with_gateway_options(GatewayOptions(access=Access(admin_token=TOKEN)))
class TestOpenStreams:
    @pytest_asyncio.fixture(autouse=True, loop_scope="module")
    async def echo(self, deploy: Deploy, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(session_guard, "CHECK_SECONDS", 0.05)
        await deploy(ECHO)

    @pytest.mark.parametrize(("method", "path", "body"), STREAMS)
    async def test_signing_out_ends_the_streams_of_the_session(
        self, gateway: httpx.AsyncClient, method: str, path: str, body: dict[str, Any] | None
    ) -> None:
        session, other = await sign_in(gateway), await sign_in(gateway)
        headers = session | CHANGE | {"accept": "text/event-stream"}

        async with gateway.stream(method, path, json=body, headers=headers) as response:
            lines = response.aiter_lines()
            assert await anext(lines)
            await gateway.delete("/console/session", headers=session | CHANGE)
            *_, event, data, _end = [line async for line in lines]

        assert event == "event: error"
        assert json.loads(data.removeprefix("data: "))["error"]["code"] == "not_signed_in"
        assert (await gateway.get("/console/admin/v1/apps", headers=session)).status_code == 401
        assert (await gateway.get("/console/admin/v1/apps", headers=other)).status_code == 200

    async def test_signing_out_cuts_off_a_response_that_is_not_a_stream_of_events(
        self, gateway: httpx.AsyncClient, deploy: Deploy, caplog: pytest.LogCaptureFixture
    ) -> None:
        await deploy(SPEAKER.replace("options.items())", "options.items()), seconds=100"))
        session = await sign_in(gateway)
        body = {"model": "speaker", "input": "word " * 500}

        async with gateway.stream("POST", SPEECH, json=body, headers=session | CHANGE) as response:
            parts = response.aiter_bytes()
            assert await anext(parts)
            await gateway.delete("/console/session", headers=session | CHANGE)
            with pytest.raises(httpx.RemoteProtocolError):
                [part async for part in parts]

        assert "uvicorn.error" not in {record.name for record in caplog.records}

    async def test_a_stream_ends_when_its_session_expires(
        self, gateway: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        session = await sign_in(gateway)
        later = time.time() + SESSION_SECONDS + 1

        async with gateway.stream("GET", "/console/admin/v1/overview/events", headers=session) as response:
            lines = response.aiter_lines()
            assert await anext(lines)
            monkeypatch.setattr("time.time", lambda: later)
            assert "event: error" in [line async for line in lines]

    async def test_signing_out_cancels_a_request_without_a_stream(
        self, gateway: httpx.AsyncClient, executors: EchoExecutors
    ) -> None:
        session = await sign_in(gateway)
        calling = asyncio.create_task(gateway.post(INVOKE, json=SLOW, headers=session | CHANGE))
        await until(lambda: executors.running() == 1)

        await gateway.delete("/console/session", headers=session | CHANGE)

        refused = await calling
        assert (refused.status_code, refused.json()["error"]["code"]) == (401, "not_signed_in")
        await until(lambda: executors.running() == 0)

    async def test_signing_out_drops_a_request_that_has_not_arrived(self, gateway: httpx.AsyncClient) -> None:
        session = await sign_in(gateway)
        headers = session | CHANGE | {"content-type": "application/json", "content-length": "1000"}
        async with raw_connection(gateway) as connection:
            await connection.send(post(INVOKE, *(f"{name}: {value}" for name, value in headers.items())) + b"{")
            await until(lambda: self.body_bytes(gateway, 1))

            await gateway.delete("/console/session", headers=session | CHANGE)

            assert (await connection.read_response()).status == 401
            await until(lambda: self.body_bytes(gateway, 0))

    @staticmethod
    async def body_bytes(gateway: httpx.AsyncClient, expected: int) -> bool:
        metrics = await gateway.get("/metrics", headers={"authorization": f"Bearer {TOKEN}"})
        return f"cornserve_gateway_body_bytes {expected}.0\n" in metrics.text


async def test_without_a_token_the_console_of_this_machine_needs_no_sign_in(
    gateway: httpx.AsyncClient, deploy: Deploy
) -> None:
    await deploy(ECHO)

    session = (await gateway.get("/console/session")).json()

    assert (session["role"], session["needs_token"], session["expires"]) == ("admin", False, None)
    assert [app["name"] for app in (await gateway.get("/console/admin/v1/apps")).json()["apps"]] == ["echo"]
    assert (await gateway.get("/console/admin/v1/apps", headers={"host": "rebound.example"})).status_code == 403


@with_gateway_options(GatewayOptions(serves_console=False))
async def test_the_console_can_be_turned_off(gateway: httpx.AsyncClient) -> None:
    for path in ("/console", "/console/", "/console/session", "/console/admin/v1/apps"):
        assert (await gateway.get(path)).status_code == 404


class TestSessions:
    def test_all_gateways_of_an_instance_accept_a_session(self) -> None:
        access = Access(admin_token=TOKEN)
        signed_in = BrowserSessions(lambda: access, CREDENTIALS.secret).sign_in(TOKEN)
        assert signed_in is not None

        assert BrowserSessions(lambda: access, CREDENTIALS.secret).find(signed_in[1]) == signed_in[0]

    def test_another_token_ends_the_sessions_of_its_role(self) -> None:
        current = [Access(admin_token=TOKEN, read_token=READER)]
        console = BrowserSessions(lambda: current[-1], CREDENTIALS.secret)
        admin, viewer = console.sign_in(TOKEN), console.sign_in(READER)
        assert admin is not None
        assert viewer is not None

        current.append(Access(admin_token="n" * 32, read_token=READER))

        assert console.find(admin[1]) is None
        assert console.find(viewer[1]) == viewer[0]

    def test_a_session_expires(self, monkeypatch: pytest.MonkeyPatch) -> None:
        console = BrowserSessions(lambda: Access(admin_token=TOKEN), CREDENTIALS.secret)
        signed_in = console.sign_in(TOKEN)
        assert signed_in is not None
        session, cookie = signed_in
        assert session.role is Role.ADMIN

        later = time.time() + SESSION_SECONDS + 1
        monkeypatch.setattr("time.time", lambda: later)

        assert console.find(cookie) is None

    def test_a_bounded_number_of_ended_sessions_is_kept(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sessions, "MAX_ENDED", 2)
        console = BrowserSessions(lambda: Access(admin_token=TOKEN), CREDENTIALS.secret)
        signed_in = [console.sign_in(TOKEN) for _ in range(3)]
        cookies = [each[1] for each in signed_in if each is not None]
        for cookie in cookies:
            console.end(cookie)

        assert [console.find(cookie) is None for cookie in cookies] == [False, True, True]

    def test_instances_of_a_machine_have_different_cookies(self, tmp_path: Path) -> None:
        secrets = [InstanceSecret.load_or_create(tmp_path / name) for name in "ab"]
        names = {BrowserSessions(lambda: Access(admin_token=TOKEN), secret).cookie for secret in secrets}

        assert len(names) == 2
