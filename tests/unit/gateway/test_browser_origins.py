"""Web pages call the gateway from a browser if their origin is allowed (CORS)."""

from __future__ import annotations

import httpx2 as httpx
import pytest

from cornserve.access import Access
from cornserve.browser_origins import BrowserOriginError, BrowserOrigins
from tests.unit.gateway.running_gateway import GatewayOptions, with_gateway_options

PAGE, OTHER = "https://example.com", "https://example.org"
KEY = "k" * 16
PREFLIGHT = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type"}


def of(origin: str) -> dict[str, str]:
    return {"origin": origin}


@with_gateway_options(GatewayOptions(allow_origin=(PAGE,)))
class TestOriginsWithoutKeys:
    async def test_pages_of_an_allowed_origin_call_v1_only(self, gateway: httpx.AsyncClient) -> None:
        allowed = await gateway.get("/v1/models", headers=of(PAGE))
        assert (allowed.status_code, allowed.headers["access-control-allow-origin"]) == (200, PAGE)

        exposed = allowed.headers["access-control-expose-headers"].split(", ")
        assert {"retry-after", "x-request-id", "request-id", "x-should-retry"} < {*exposed}

        for path, page in (("/v1/models", OTHER), ("/admin/v1/apps", PAGE)):
            refused = await gateway.get(path, headers=of(page))
            assert (refused.status_code, refused.json()["error"]["code"]) == (403, "foreign_host")

    async def test_browsers_may_ask_before_they_call(self, gateway: httpx.AsyncClient) -> None:
        allowed = await gateway.options("/v1/chat/completions", headers=of(PAGE) | PREFLIGHT)
        assert allowed.status_code == 200
        assert allowed.headers["x-request-id"]
        assert allowed.headers["access-control-allow-origin"] == PAGE
        assert "authorization" in allowed.headers["access-control-allow-headers"]

        assert (await gateway.options("/v1/chat/completions", headers=of(OTHER) | PREFLIGHT)).status_code == 400


@with_gateway_options(GatewayOptions(access=Access((KEY,), "t" * 32), allow_origin=("*",)))
class TestOriginsWithKeys:
    async def test_the_preflight_needs_no_key_but_the_call_does(self, gateway: httpx.AsyncClient) -> None:
        assert (await gateway.options("/v1/models", headers=of(OTHER) | PREFLIGHT)).status_code == 200
        refused = await gateway.get("/v1/models", headers=of(OTHER))
        assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, "*")
        called = await gateway.get("/v1/models", headers=of(OTHER) | {"authorization": f"Bearer {KEY}"})
        assert called.status_code == 200


async def test_no_origin_is_allowed_by_default(gateway: httpx.AsyncClient) -> None:
    response = await gateway.get("/v1/models", headers=of(str(gateway.base_url).rstrip("/")))

    assert response.status_code == 200
    assert "access-control-allow-origin" not in response.headers


@pytest.mark.parametrize("setting", ["example.com", "https://example.com/page", "null", "", "ftp://example.com"])
def test_a_setting_that_is_not_an_origin_is_refused(setting: str) -> None:
    with pytest.raises(BrowserOriginError, match="is not an origin: give SCHEME://HOST"):
        BrowserOrigins.parse([setting])


def test_all_origins_need_api_keys() -> None:
    origins = BrowserOrigins.parse(["*"])
    with pytest.raises(BrowserOriginError, match="every web page could use the gateway: set API keys"):
        origins.check_access(Access())
    origins.check_access(Access((KEY,), "t" * 32))


def test_arguments_of_other_processes_have_the_same_origins() -> None:
    origins = BrowserOrigins.parse(["https://Example.com/", "http://localhost:3000"])
    assert BrowserOrigins.parse(origins.cli_arguments[1::2]) == origins
