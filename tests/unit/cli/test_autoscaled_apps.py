"""Commands for apps that are autoscaled."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from cornserve.cli.commands import app
from tests.unit.http_server import StubServer, json_response, sse_response

UNREACHABLE = "http://127.0.0.1:1"


def test_executors_and_their_loads_are_part_of_the_spec(cli: CliRunner, server: StubServer) -> None:
    server.on("PUT /admin/v1/apps/b", json_response({"error": {"message": "stored"}}, 400))
    settings = ["llm=2000tokens:1-4", "resize=8.5requests", "shrink_seconds=600"]
    arguments = [argument for setting in settings for argument in ("--autoscale", setting)]

    cli.invoke(app, ["deploy", "a/b", *arguments, "--routing", "static", "--url", server.url])

    assert server.requests[-1][1]["policies"] == {
        "routing": "static",
        "binding": "early",
        "autoscaling": {
            "executors": [
                {"name": "llm", "capacity": 2000, "unit": "tokens", "min_replicas": 1, "max_replicas": 4},
                {"name": "resize", "capacity": 8.5, "unit": "requests"},
            ],
            "shrink_seconds": 600,
        },
    }


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["llm=2000"], "--autoscale: 'llm=2000' is not an executor with the load per second"),
        (["llm=0tokens"], "--autoscale: policies.autoscaling.executors"),
        (["llm=1tokens:4-2"], "--autoscale: policies.autoscaling: 4 to 2 replicas: the first number"),
        (["llm=1tokens", "llm=2tokens"], "--autoscale: policies.autoscaling: executors: 'llm' is given more than once"),
        (["shrink_seconds=10"], "--autoscale: policies.autoscaling.executors"),
        (["llm=1tokens", "--adapt", "on"], "--autoscale: policies: adaptation is for an app with a plan"),
    ],
)
def test_settings_that_cannot_be_used_are_rejected(cli: CliRunner, settings: list[str], message: str) -> None:
    arguments = [part for each in settings for part in ([each] if each in ("--adapt", "on") else ["--autoscale", each])]
    result = cli.invoke(app, ["deploy", "a/b", *arguments, "--url", UNREACHABLE])
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: {message}")
    assert result.stderr.count("\n") == 1


def test_the_load_of_an_executor_is_shown(cli: CliRunner, server: StubServer) -> None:
    llm = {"name": "llm", "unit": "tokens", "load": 2600.0, "capacity": 2000.0}
    encoder = {"name": "encoder", "unit": "requests", "capacity": 20.0}
    spec = {"model": "/m", "executor_replicas": {"llm": 2}}
    status = {"phase": "serving", "generation": 1, "adaptation": {"executors": [llm, encoder]}}
    view = {"name": "a", "uid": "u", "generation": 1, "version": 1, "spec": spec, "status": status}
    server.on("GET /admin/v1/apps/a?memory=true", json_response(view))

    lines = cli.invoke(app, ["status", "a", "--url", server.url]).stdout.splitlines()

    assert "load of llm: 2600 of 4000 tokens/s (2 × 2000)" in lines
    assert "load of encoder: not known yet, of 20 requests/s (1 × 20)" in lines


def test_one_executor_is_scaled(cli: CliRunner, server: StubServer) -> None:
    spec = {"model": "/m", "executor_replicas": {"llm": 3}}
    view = {"name": "a", "uid": "u", "generation": 1, "version": 1, "spec": spec, "status": {}}
    server.on("PUT /admin/v1/apps/a/scale", json_response(view))

    result = cli.invoke(app, ["scale", "a", "--executor", "llm=3", "--no-wait", "--url", server.url])

    assert result.exit_code == 0, result.stderr
    assert server.requests == [("PUT /admin/v1/apps/a/scale", {"executors": {"llm": 3}})]


@pytest.mark.parametrize(
    ("before", "after", "printed"),
    [(2, 34, ["32 running responses moved to other replicas"]), (2, 2, []), (34, 2, [])],
)
def test_moved_streams_are_counted(
    cli: CliRunner, server: StubServer, before: int, after: int, printed: list[str]
) -> None:
    status = {"phase": "serving", "generation": 1}
    view = {"name": "a", "uid": "u", "generation": 1, "version": 1, "spec": {"model": "/m"}, "status": status}
    server.on("PUT /admin/v1/apps/a/scale", json_response(view | {"moved_streams": before}))
    server.on("GET /admin/v1/apps/a/events", sse_response(("app", view | {"version": 2, "moved_streams": after})))
    server.on("GET /v1/models", json_response({"data": [{"id": "a", "uid": "u", "generation": 1}]}))

    result = cli.invoke(app, ["scale", "a", "1", "--url", server.url])

    assert result.exit_code == 0, result.stderr
    assert [line for line in result.stderr.splitlines() if "moved" in line] == printed


@pytest.mark.parametrize("setting", ["llm", "llm=many"])
def test_a_number_of_replicas_that_is_not_one_is_rejected(cli: CliRunner, setting: str) -> None:
    result = cli.invoke(app, ["scale", "a", "--executor", setting, "--url", UNREACHABLE])
    assert (result.exit_code, result.stderr) == (1, f"error: --executor: '{setting}' is not NAME=N, such as llm=3\n")
