"""The removal of temporary apps after a profiler was killed."""

from __future__ import annotations

import pytest

from cornserve.client import Client
from cornserve.profiler import cleanup
from cornserve.profiler.temporary_apps import PREFIX
from tests.unit.http_server import StubServer, json_response, serving


def listing(*names: str) -> dict[str, object]:
    record = {"uid": "u", "generation": 1, "version": 1, "spec": {"source": {"inline": "app = ..."}}, "status": {}}
    return {"apps": [{"name": name, **record} for name in names], "unreadable": []}


def test_an_app_that_the_gateway_stores_after_the_profiler_was_killed_is_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cleanup, "PAUSE_SECONDS", 0.0)
    late, other = f"{PREFIX}a-1", f"{PREFIX}b-1"
    with serving() as server:
        server.on("GET /admin/v1/apps", *map(json_response, (listing(other), listing(late, other), listing(other))))
        server.on(f"DELETE /admin/v1/apps/{late}", json_response({}))
        looks = iter([False, False, True])
        cleanup.remove_until(lambda: Client(server.url), f"{PREFIX}a-", lambda: next(looks))

    assert deletions(server) == [f"DELETE /admin/v1/apps/{late}"]


def test_apps_are_deleted_when_the_gateway_has_restarted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleanup, "PAUSE_SECONDS", 0.0)
    name = f"{PREFIX}a-1"
    with serving() as server:
        stopped = "http://127.0.0.1:1"
        urls = iter([stopped, server.url])
        server.on("GET /admin/v1/apps", json_response({}, status=500), json_response(listing(name)))
        server.on(f"DELETE /admin/v1/apps/{name}", json_response({}))
        looks = iter([False, False, True])
        cleanup.remove_until(lambda: Client(next(urls, server.url), retries=0), f"{PREFIX}a-", lambda: next(looks))

    assert deletions(server) == [f"DELETE /admin/v1/apps/{name}"]


def test_the_removal_ends_without_a_gateway() -> None:
    cleanup.remove_until(lambda: Client("http://127.0.0.1:1", retries=0), PREFIX, lambda: True)


def deletions(server: StubServer) -> list[str]:
    return [call for call, _ in server.requests if call.startswith("DELETE")]
