"""Commands for apps that adapt to their load."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta

import pytest
from typer.testing import CliRunner

from cornserve.app.adaptation_status import PlanProposal
from cornserve.cli.commands import app
from tests.unit.app.plans import cell, plan, plan_document
from tests.unit.http_server import StubServer, json_response

UNREACHABLE = "http://127.0.0.1:1"

PROPOSAL = {
    "generation": 3,
    "cells": [{"gpus": 1, "count": 2}, {"gpus": 4, "count": 1}],
    "target": 27.0,
    "reason": "27 requests/s arrived in 20 s, and the running cells serve 20",
    "gpus_now": 4,
    "gpus": 6,
    "rate_now": 20.0,
    "rate": 28.0,
}

MIX_SHIFT = {
    "distance": 0.25,
    "shares": [
        {"type": "", "planned": 0.0, "observed": 0.05},
        {"type": "images", "planned": 0.5, "observed": 0.25},
        {"type": "text", "planned": 0.5, "observed": 0.7},
    ],
}

VIEW = {"name": "a", "uid": "u", "generation": 3, "version": 1, "spec": {"model": {"id": "/m"}}}


def test_settings_of_the_adaptation_are_part_of_the_spec(cli: CliRunner, server: StubServer) -> None:
    server.on("PUT /admin/v1/apps/b", json_response({"error": {"message": "stored"}}, 400))
    cli.invoke(app, ["deploy", "a/b", "--adapt", "max_rate=40", "--adapt", "approval=true", "--url", server.url])
    adaptation = server.requests[-1][1]["policies"]["adaptation"]
    assert adaptation == {"max_rate": 40, "approval": True}

    cli.invoke(app, ["deploy", "a/b", "--adapt", "on", "--routing", "static", "--url", server.url])
    assert server.requests[-1][1]["policies"] == {"routing": "static", "binding": "early", "adaptation": {}}


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("off", "error: 'off' is not a valid setting: give `on` or NAME=VALUE, such as max_rate=40\n"),
        ("max_rate=many", "error: --adapt: max_rate: "),
        ("speed=2", "error: --adapt: speed: "),
        ("dwell_seconds=2000", "error: --adapt: "),
    ],
)
def test_a_setting_that_cannot_be_used_is_rejected(cli: CliRunner, setting: str, message: str) -> None:
    result = cli.invoke(app, ["deploy", "a/b", "--adapt", setting, "--url", UNREACHABLE])
    assert result.exit_code == 1
    assert result.stderr.startswith(message)
    assert result.stderr.count("\n") == 1


def test_a_proposal_and_a_shift_of_the_mix_are_shown(cli: CliRunner, server: StubServer) -> None:
    adaptation = {"proposal": PROPOSAL, "mix_shift": MIX_SHIFT}
    status = {"phase": "serving", "generation": 3, "adaptation": adaptation}
    server.on("GET /admin/v1/apps/a?memory=true", json_response(VIEW | {"status": status}))

    lines = [line.strip() for line in cli.invoke(app, ["status", "a", "--url", server.url]).stdout.splitlines()]

    assert "28 requests/s on 6 GPUs (now 20 on 4)" in lines
    assert "approve it with `cornserve scale a --approve`" in lines
    assert "mix: 25% of the requests have another type than planned" in lines
    assert "types that are not planned: 5.0% (planned 0.0%)" in lines
    assert "make another plan with `cornserve plan from a`, and deploy it" in lines
    assert any(line.startswith("proposed: 1 × 4 GPUs, 2 × 1 GPU, because 27 requests/s arrived") for line in lines)


def test_another_plan_is_shown_with_its_benefit_and_its_cost(cli: CliRunner, server: StubServer) -> None:
    running, proposed = plan(cell(4, {"E": 1, "L": 3}, count=1)), plan(cell(4, {"E": 2, "L": 2}, count=1))
    proposal = PlanProposal.of(3, running, proposed, 12.0, "60% of the requests have another type than planned")
    adaptation = {"plan_proposal": proposal.model_dump(mode="json"), "mix_shift": MIX_SHIFT}
    planning = {"gpus": 4, "workload": {"all": {"components": ["llm"], "share": 1}}, "profile": {"model": "a"}}
    fields = {"plan": running.model_dump(mode="json"), "planning": planning, "policies": {"adaptation": {}}}
    spec = VIEW["spec"] | fields  # type: ignore[operator]
    status = {"phase": "serving", "generation": 3, "adaptation": adaptation}
    server.on("GET /admin/v1/apps/a?memory=true", json_response(VIEW | {"spec": spec, "status": status}))

    lines = [line.strip() for line in cli.invoke(app, ["status", "a", "--url", server.url]).stdout.splitlines()]

    assert "proposed: another plan, 1 × 4 GPUs, because 60% of the requests have another type than planned" in lines
    assert "20 requests/s on 4 GPUs (now 12 on 4), for this mix" in lines
    assert "4 replicas start, and 4 stop" in lines
    assert "another plan replaces the running one if it serves this mix notably better" in lines


def test_a_plan_that_cannot_replace_the_running_one_is_shown_with_the_reason(
    cli: CliRunner, server: StubServer
) -> None:
    running = plan(cell(4, {"E": 1, "L": 3}, count=1))
    proposal = PlanProposal.of(3, running, running, 12.0, "the mix has shifted", "both need 8 CPU slots")
    status = {"phase": "serving", "generation": 3, "adaptation": {"plan_proposal": proposal.model_dump(mode="json")}}
    server.on("GET /admin/v1/apps/a?memory=true", json_response(VIEW | {"status": status}))

    lines = [line.strip() for line in cli.invoke(app, ["status", "a", "--url", server.url]).stdout.splitlines()]

    assert "it cannot replace the running plan: both need 8 CPU slots" in lines
    assert not any("--approve" in line for line in lines)


def test_a_proposal_is_approved(cli: CliRunner, server: StubServer) -> None:
    server.on("PUT /admin/v1/apps/a/scale", json_response(VIEW | {"status": {}}))
    result = cli.invoke(app, ["scale", "a", "--approve", "--no-wait", "--url", server.url])
    assert result.exit_code == 0, result.stderr
    assert server.requests == [("PUT /admin/v1/apps/a/scale", {"approve": True})]


@pytest.mark.parametrize("arguments", [["2", "--approve"], ["--rate", "2", "--approve"], []])
def test_exactly_one_size_is_given(cli: CliRunner, arguments: list[str]) -> None:
    result = cli.invoke(app, ["scale", "a", *arguments, "--url", UNREACHABLE])
    assert result.exit_code == 1
    assert "one of --rate, --gpus and --approve" in result.stderr


@pytest.mark.parametrize("rate", ["inf", "nan", "-1"])
def test_rates_that_are_not_finite_are_refused(cli: CliRunner, rate: str) -> None:
    result = cli.invoke(app, ["scale", "a", "--rate", rate, "--url", UNREACHABLE])
    assert result.exit_code == 2
    assert f"Invalid value for '--rate': {rate} is not a rate: give requests per second" in result.stderr


def test_arriving_rates_are_shown_beside_planned_ones(cli: CliRunner, server: StubServer) -> None:
    rates = [{"type": "", "planned": 0.0, "observed": 0.3}, {"type": "text", "planned": 5.0, "observed": 3.1}]
    planned = plan_document(cell(1, {"EL": 1}, count=1, rate=4.0))
    status = {"phase": "serving", "generation": 3, "cells": 1, "adaptation": {"rates": rates}}
    view = VIEW | {"spec": {"source": "app = ...", "plan": planned}, "status": status}
    server.on("GET /admin/v1/apps/a?memory=true", json_response(view))

    shown = cli.invoke(app, ["status", "a", "--url", server.url]).stdout

    assert "not planned  0.3 of 0 requests/s arrive" in shown
    assert "text  3.1 of 5 requests/s arrive" in shown


def held_view(minutes: float, **policies: dict[str, object]) -> dict[str, object]:
    """Returns an app that serves, and whose size holds from now on."""
    until = datetime.now(UTC) + timedelta(minutes=minutes)
    spec = {"model": "/m", "policies": policies or {"adaptation": {}}, "held_until": until.isoformat()}
    return VIEW | {"spec": spec, "status": {"phase": "serving", "generation": 3}}


@pytest.mark.parametrize("policy", ["adaptation", "autoscaling"])
def test_the_time_for_which_a_size_holds_is_shown(cli: CliRunner, server: StubServer, policy: str) -> None:
    settings = {"adaptation": {}, "autoscaling": {"executors": [{"name": "llm", "capacity": 1}]}}[policy]
    view = held_view(10.0, **{policy: settings})  # type: ignore[arg-type]
    server.on("PUT /admin/v1/apps/a/scale", json_response(view))
    server.on("GET /admin/v1/apps/a?memory=true", json_response(view))

    scaled = cli.invoke(app, ["scale", "a", "2", "--no-wait", "--url", server.url])
    shown = cli.invoke(app, ["status", "a", "--url", server.url])

    for text in (scaled.stderr, shown.stdout):
        assert " UTC (10 minutes), whatever the load" in text
        assert "change the time with `cornserve scale a --hold SECONDS`; 0 ends it" in text


@pytest.mark.parametrize(
    ("minutes", "text"), [(0.5, r"\((30|29|2\d) seconds\)"), (1.5, r"\((90|8\d) seconds\)"), (2.5, r"\(3 minutes\)")]
)
def test_a_short_hold_is_shown_in_seconds(cli: CliRunner, server: StubServer, minutes: float, text: str) -> None:
    server.on("GET /admin/v1/apps/a?memory=true", json_response(held_view(minutes)))

    assert re.search(text, cli.invoke(app, ["status", "a", "--url", server.url]).stdout)


def test_a_size_that_has_held_is_not_shown(cli: CliRunner, server: StubServer) -> None:
    server.on("GET /admin/v1/apps/a?memory=true", json_response(held_view(-1.0)))

    assert "holds" not in cli.invoke(app, ["status", "a", "--url", server.url]).stdout


def test_the_time_for_which_a_size_holds_is_set(cli: CliRunner, server: StubServer) -> None:
    view = held_view(60.0)
    server.on("PUT /admin/v1/apps/a/scale", json_response(view))

    for options, body in [
        (["--gpus", "4", "--hold", "3600"], {"gpus": 4, "hold_seconds": 3600}),
        (["--hold", "0"], {"hold_seconds": 0}),
    ]:
        result = cli.invoke(app, ["scale", "a", *options, "--no-wait", "--json", "--url", server.url])
        assert server.requests[-1][1] == body
        assert json.loads(result.stdout)["spec"]["held_until"] is not None


def test_an_approved_change_does_not_hold(cli: CliRunner) -> None:
    result = cli.invoke(app, ["scale", "a", "--approve", "--hold", "60", "--url", UNREACHABLE])
    assert result.exit_code == 1
    assert "--hold: an approved change follows the load: remove --hold or --approve" in result.stderr
