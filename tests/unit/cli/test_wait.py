"""`cornserve wait` returns when all replicas of an app are ready."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from cornserve.cli.commands import app
from tests.unit.http_server import StubServer, json_response, sse_response

EVENTS = "GET /admin/v1/apps/a/events"


def view(version: int, phase: str, *states: str, generation: int = 2, uid: str = "u") -> dict[str, Any]:
    """Returns an app with two desired replicas, in its second generation."""
    replicas = [{"id": f"llm-{number}", "state": state} for number, state in enumerate(states)]
    groups = [{"key": "llm-1", "executor": "llm", "wanted": 2, "replicas": replicas}]
    status = {"phase": phase, "generation": generation, "groups": groups, "message": "no memory"}
    app = {"name": "a", "uid": uid, "generation": 2, "version": version, "spec": {"model": {"id": "/m"}, "replicas": 2}}
    return {**app, "status": status}


@pytest.fixture(autouse=True)
def deployed(server: StubServer) -> None:
    server.on("GET /admin/v1/apps/a", json_response(view(1, "starting")))
    server.on("GET /v1/models", json_response({"data": [{"id": "a", "uid": "u", "generation": 2}]}))


def test_it_waits_for_all_replicas_of_the_newest_generation(cli: CliRunner, server: StubServer) -> None:
    views = [
        view(1, "serving", "ready", "ready", generation=1),
        view(2, "starting", "starting", "starting"),
        view(3, "serving", "ready", "starting"),
        view(4, "serving", "ready", "ready", "draining"),
        view(5, "serving", "ready", "ready"),
    ]
    server.on(EVENTS, sse_response(*(("put", each) for each in views)))

    result = cli.invoke(app, ["wait", "a", "--json", "--url", server.url])

    assert result.exit_code == 0, result.stderr
    assert '"version": 5' in result.stdout
    assert "a has 2 replicas of each executor" in result.stderr


@pytest.mark.parametrize(
    ("last", "message"),
    [
        (view(2, "failed"), "error: a has failed: no memory"),
        (view(2, "serving", "ready", "ready", uid="another"), "error: a was deleted"),
    ],
)
def test_it_fails_if_the_replicas_will_not_be_ready(
    cli: CliRunner, server: StubServer, last: dict[str, Any], message: str
) -> None:
    server.on("GET /v1/models", json_response({"data": [{"id": "a", "uid": "another", "generation": 2}]}))
    server.on(EVENTS, sse_response(("put", last)))

    result = cli.invoke(app, ["wait", "a", "--url", server.url])

    assert result.exit_code == 1
    assert message in result.stderr


def test_an_app_that_the_gateway_does_not_load_is_named(
    cli: CliRunner, server: StubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = count(step=10)
    monkeypatch.setattr("cornserve.client.deadline.time", SimpleNamespace(monotonic=lambda: next(seconds)))
    server.on("GET /v1/models", json_response({"data": []}))
    server.on(EVENTS, sse_response(("put", view(2, "serving", "ready", "ready"))))

    result = cli.invoke(app, ["wait", "a", "--url", server.url])

    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1] == "error: the gateway has not loaded generation 2 of a: see its log"


def test_it_ends_after_the_timeout(cli: CliRunner, server: StubServer) -> None:
    server.on(EVENTS, sse_response(("put", view(2, "serving", "ready", "starting")), cut=True))

    result = cli.invoke(app, ["wait", "a", "--timeout", "0.2", "--url", server.url])

    assert result.exit_code == 1
    assert "some replicas of a are not ready after 0.2 s" in result.stderr
