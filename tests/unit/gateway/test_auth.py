"""Requests need a key if the gateway has keys; otherwise, it accepts only local requests."""

from __future__ import annotations

import httpx2 as httpx
import pytest

from cornserve.access import Access
from cornserve.app.app_logs import APP_LOGS_PATH, APP_LOGS_TOKEN
from cornserve.app.arrivals import ARRIVALS_PATH, ARRIVALS_TOKEN
from cornserve.control.profiling.job import PROFILER_TOKEN, TEMPORARY_PREFIX
from tests.credentials import CREDENTIALS
from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.raw_http import post, raw_connection
from tests.unit.gateway.running_gateway import GatewayOptions, with_gateway_options
from tests.unit.gateway.sources import ECHO

LINES_PATH = f"{APP_LOGS_PATH}/echo?lines=1"
KEY, OTHER, TOKEN, READER = "k" * 16, "o" * 16, "t" * 32, "r" * 32


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@with_gateway_options(GatewayOptions(access=Access((KEY, OTHER), TOKEN)))
class TestWithKeys:
    @pytest.mark.parametrize("path", ["/v1/models", "/metrics", "/openapi.json", "/v1/nothing", "/", "//admin/v1/apps"])
    async def test_everything_needs_a_key(self, gateway: httpx.AsyncClient, path: str) -> None:
        rejected = await gateway.get(path)

        assert rejected.status_code == 401
        assert rejected.headers["www-authenticate"] == "Bearer"
        assert rejected.headers["x-request-id"]
        assert rejected.json()["error"]["code"] == "invalid_api_key"
        for key in (KEY, OTHER, TOKEN):
            assert (await gateway.get(path, headers=bearer(key))).status_code in (200, 404)

    @pytest.mark.parametrize("path", ["/healthz", "/readyz"])
    async def test_probes_need_no_key(self, gateway: httpx.AsyncClient, path: str) -> None:
        assert (await gateway.get(path)).status_code == 200

    @pytest.mark.parametrize("path", ["/admin/v1/apps", "/admin/v1/nothing", "/%61dmin/v1/apps"])
    async def test_administration_needs_the_admin_token(self, gateway: httpx.AsyncClient, path: str) -> None:
        assert (await gateway.get(path)).status_code == 401
        assert (await gateway.get(path, headers=bearer("x" * 16))).status_code == 401
        assert (await gateway.get(path, headers=bearer(TOKEN))).status_code in (200, 404)
        with_key = await gateway.get(path, headers=bearer(KEY))
        assert with_key.status_code == 403
        assert "the key is an API key, not the admin token" in with_key.json()["error"]["message"]

    @pytest.mark.parametrize(
        "value", ["", "Bearer", f"Basic {KEY}", KEY, "Bearer " + KEY[1:], f"Bearer {KEY}, x", "Bearer \xff"]
    )
    async def test_an_unknown_or_malformed_key_is_rejected(self, gateway: httpx.AsyncClient, value: str) -> None:
        response = await gateway.get("/v1/models", headers={b"authorization": value.encode("latin-1")})

        assert response.status_code == 401

    @pytest.mark.parametrize(
        ("path", "purpose", "other"),
        [(ARRIVALS_PATH, ARRIVALS_TOKEN, APP_LOGS_TOKEN), (LINES_PATH, APP_LOGS_TOKEN, ARRIVALS_TOKEN)],
    )
    async def test_internal_paths_need_the_token_of_the_instance(
        self, gateway: httpx.AsyncClient, path: str, purpose: str, other: str
    ) -> None:
        internal = CREDENTIALS.secret.token(purpose)
        for key in ("x", KEY, TOKEN, CREDENTIALS.secret.token(other), CREDENTIALS.secret.key.hex()):
            rejected = await gateway.get(path, headers=bearer(key))
            assert rejected.status_code == 403
            assert "only processes of the instance" in rejected.json()["error"]["message"]

        assert (await gateway.get(path, headers=bearer(internal))).status_code == 200
        assert (await gateway.get("/v1/models", headers=bearer(internal))).status_code == 401
        assert (await gateway.get("/admin/v1/apps", headers=bearer(internal))).status_code == 401

    async def test_profilers_use_temporary_apps_only(self, gateway: httpx.AsyncClient) -> None:
        token = bearer(CREDENTIALS.secret.token(PROFILER_TOKEN))
        temporary = f"apps/{TEMPORARY_PREFIX}1234-1"
        for path in ("/v1/models", f"/v1/{temporary}/invoke", "/admin/v1/apps", f"/admin/v1/{temporary}"):
            assert (await gateway.get(path, headers=token)).status_code in (200, 404, 405)
        for path in ("/v1/apps/echo/invoke", "/metrics", "/admin/v1/apps/echo", f"/admin/v1/{temporary}/logs"):
            assert (await gateway.get(path, headers=token)).status_code == 401
        assert (await gateway.get(ARRIVALS_PATH, headers=token)).status_code == 403

    @pytest.mark.parametrize("header", ["x-api-key", "api-key"])
    async def test_a_key_may_be_in_a_header_of_other_apis(self, gateway: httpx.AsyncClient, header: str) -> None:
        assert (await gateway.get("/v1/models", headers={header: KEY})).status_code == 200
        assert (await gateway.get("/v1/models", headers={header: "x"})).status_code == 401
        assert (await gateway.get("/v1/models", headers={header: KEY} | bearer("x"))).status_code == 401

    async def test_the_authorization_scheme_is_case_insensitive(self, gateway: httpx.AsyncClient) -> None:
        assert (await gateway.get("/v1/models", headers={"authorization": f"bearer {KEY}"})).status_code == 200

    async def test_a_request_without_a_key_is_rejected_before_its_body_is_read(
        self, gateway: httpx.AsyncClient
    ) -> None:
        async with raw_connection(gateway) as connection:
            await connection.send(post("/v1/chat/completions", "Content-Length: 10", "Expect: 100-continue"))

            assert (await connection.read_response()).status == 401

    async def test_a_key_allows_any_host_name(self, gateway: httpx.AsyncClient) -> None:
        headers = bearer(KEY) | {"host": "cornserve.example", "origin": "https://example.com"}

        assert (await gateway.get("/v1/models", headers=headers)).status_code == 200


@with_gateway_options(GatewayOptions(access=Access((KEY,), TOKEN, READER)))
class TestWithAReadOnlyToken:
    @pytest.mark.parametrize("path", ["/admin/v1/apps", "/v1/models", "/metrics"])
    async def test_it_reads(self, gateway: httpx.AsyncClient, path: str) -> None:
        assert (await gateway.get(path, headers=bearer(READER))).status_code == 200
        assert (await gateway.head(path, headers=bearer(READER))).status_code == 200

    async def test_it_changes_nothing(self, gateway: httpx.AsyncClient) -> None:
        for method, path in (
            ("DELETE", "/admin/v1/apps/echo"),
            ("PUT", "/admin/v1/apps/echo/scale"),
            ("POST", "/v1/apps/echo/invoke"),
        ):
            refused = await gateway.request(method, path, headers=bearer(READER), json={})
            assert (refused.status_code, refused.json()["error"]["code"]) == (403, "read_only")

    async def test_it_is_not_a_token_of_the_instance(self, gateway: httpx.AsyncClient) -> None:
        assert (await gateway.get(ARRIVALS_PATH, headers=bearer(READER))).status_code == 403


@with_gateway_options(GatewayOptions(access=Access(admin_token=TOKEN)))
class TestWithATokenOnly:
    async def test_only_administration_needs_the_token(self, gateway: httpx.AsyncClient, deploy: Deploy) -> None:
        await deploy(ECHO)

        assert (await gateway.get("/v1/models")).status_code == 200
        assert (await gateway.delete("/admin/v1/apps/echo")).status_code == 401
        assert (await gateway.delete("/admin/v1/apps/echo", headers=bearer(TOKEN))).status_code == 204


@pytest.mark.parametrize("host", ["localhost:8000", "127.0.0.1", "127.9.9.9:1", "[::1]:8000", "LOCALHOST"])
async def test_without_keys_local_requests_are_accepted(gateway: httpx.AsyncClient, host: str) -> None:
    headers = {"host": host, "origin": f"http://{host}"}

    assert (await gateway.get("/v1/models", headers=headers)).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "rebound.example"},
        {"host": "127.0.0.1.rebound.example"},
        {"host": "localhost.rebound.example:8000"},
        {"host": "[::1"},
        {"host": ""},
        {"origin": "https://page.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1@page.example"},
    ],
)
async def test_without_keys_foreign_hosts_and_web_pages_are_rejected(
    gateway: httpx.AsyncClient, headers: dict[str, str]
) -> None:
    response = await gateway.put("/admin/v1/apps/echo", json={"source": {"inline": ECHO}}, headers=headers)

    assert response.status_code == 403
    assert response.json()["error"]["code"] == "foreign_host"
    assert (await gateway.get("/readyz", headers=headers)).status_code == 200
