"""The gateway's decision log: the simulator repeats each decision, also those of third parties' policies."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cornserve.app.app import App
from cornserve.app.response_readers import JSON
from cornserve.app.settings import AppPolicies, LatencyTargetSettings
from cornserve.blocking_apps import CurrentApp
from cornserve.cli.commands import app as cli
from cornserve.gateway.observe.latency_targets import AppTargets, RequestTargets
from cornserve.gateway.observe.request_stats import AppStats
from cornserve.gateway.request.replica_pool import ReplicaPool
from cornserve.gateway.request_route import RequestRoute
from cornserve.gateway.served_app import ServedApp
from cornserve.gateway.task_runs.local_app import LocalApp
from cornserve.observe.decision_file import DECISIONS, DecisionFile
from cornserve_planner.errors import InvalidInputError
from cornserve_planner.simulation.decision_replay import DecisionReplay
from cornserve_policies import registry
from cornserve_policies.admission import Refusal
from cornserve_policies.registry import routing_policy, routing_policy_names
from tests.credentials import CREDENTIALS
from tests.unit.echo_executors import EchoExecutors
from tests.unit.gateway.test_planned_routes import PlannedGateway, app, plan, requests_of, stage_request

__all__ = ["app", "plan"]

REPLICAS = 3


@pytest.fixture
def third_party(monkeypatch: pytest.MonkeyPatch) -> str:
    """Installs a package with a policy. Returns the policy's name."""
    entry = EntryPoint(
        "most-loaded", "tests.unit.gateway.most_loaded_routing:MostLoadedRouting", registry.ROUTING_ENTRY_POINTS
    )
    monkeypatch.setattr(registry, "entry_points", lambda **selected: EntryPoints([entry]).select(**selected))
    return entry.name


@pytest.fixture
def log(tmp_path: Path) -> Iterator[DecisionFile]:
    file = DecisionFile(tmp_path, "gateway")
    level = DECISIONS.level
    DECISIONS.addHandler(file)
    DECISIONS.setLevel(logging.INFO)
    yield file
    DECISIONS.setLevel(level)
    DECISIONS.removeHandler(file)
    file.close()


async def serve(app: App, executors: EchoExecutors, routing: str, requests: int) -> None:
    """Sends requests through a gateway of an app without a plan, 20 at a time, to several replicas of each executor."""
    pool = ReplicaPool(CREDENTIALS)
    groups = {}
    for path, (key, spec) in enumerate(app.executor_specs().items()):
        groups[key] = f"group-{path}"
        endpoints = [await executors.replica(spec) for _ in range(REPLICAS)]
        pool.update_group(groups[key], {endpoint: endpoint for endpoint in endpoints})
    policies = AppPolicies(routing=routing, log_decisions=True)
    route = RequestRoute(1, [0.5, 0.3, 0.2], groups, routing=routing_policy(routing), policies=policies)
    gateway = PlannedGateway.__new__(PlannedGateway)
    gateway.served = ServedApp(LocalApp(app, CurrentApp.of_process()), "", "", route, 0)
    gateway.stats, gateway._pool = AppStats(), pool
    running = asyncio.Semaphore(20)

    async def send(request_id: str) -> None:
        async with running:
            with gateway.session(request_id) as session:
                await session.run(stage_request("text"), JSON)

    async with asyncio.TaskGroup() as sending:
        for number in range(requests):
            sending.create_task(send(f"request-{number}"))
    await pool.close()


@pytest.mark.parametrize("routing", [*routing_policy_names(), "most-loaded"])
async def test_every_decision_is_repeated_equally(
    app: App, executors: EchoExecutors, log: DecisionFile, third_party: str, routing: str
) -> None:
    await serve(app, executors, routing, 60)

    result = DecisionReplay().run(log.path)

    assert result.decisions == {"path": 60, "replica": 60}
    assert not result.different


def test_early_refusals_are_repeated_equally(log: DecisionFile) -> None:
    targets = AppTargets(LatencyTargetSettings(ttft_seconds=30, end_to_end_seconds=0.2, admission=True))
    targets.logs_decisions = True
    admitted = [targets.admit(streams=True) for _ in range(10)]
    for each in admitted[:6]:
        assert isinstance(each, RequestTargets)
        each.record_end(200, 1.0)
    assert isinstance(targets.admit(streams=False), RequestTargets)  # A probe.
    refusal = targets.admit(streams=True)

    result = DecisionReplay().run(log.path)

    assert isinstance(refusal, Refusal)
    assert result.decisions == {"admission": 12}
    assert not result.different
    lines = [json.loads(line) for line in log.path.read_text().splitlines()[1:]]
    assert [line["refused"] for line in lines] == [""] * 11 + ["e2e"]
    assert lines[-1]["reason"].endswith(" s of 0.2 s")


async def test_another_policy_shows_what_it_would_have_chosen(
    app: App, executors: EchoExecutors, log: DecisionFile, third_party: str
) -> None:
    await serve(app, executors, "least-loaded", 60)

    equal = CliRunner().invoke(cli, ["simulate", "--replay", str(log.path)])
    assert equal.exit_code == 0, equal.output
    assert re.search(r"replica +60 +60", equal.stdout)
    other = CliRunner().invoke(cli, ["simulate", "--replay", str(log.path), "--routing", third_party])
    assert other.exit_code == 0, other.output
    assert "replica of request request-" in other.stdout
    assert " invocations, " in other.stdout
    document = json.loads(CliRunner().invoke(cli, ["simulate", "--replay", str(log.path), "--json"]).stdout)
    assert document == {
        "process": "gateway", "decisions": {"path": 60, "replica": 60}, "different": {}, "differences": [],
    }  # fmt: skip


async def test_paths_of_a_plan_are_repeated_from_the_snapshot_of_each_file(
    app: App, plan: object, log: DecisionFile
) -> None:
    log._max_bytes = 6_000
    pool = ReplicaPool(CREDENTIALS)
    gateway = PlannedGateway(LocalApp(app, CurrentApp.of_process()), plan, pool)  # type: ignore[arg-type]
    for request_id, request_type in requests_of(60).items():
        await gateway.route(request_id, stage_request(request_type))
    await pool.close()

    for file in (log.path, log.path.with_suffix(".before.jsonl")):
        result = DecisionReplay().run(file)
        assert result.decisions["path"] > 0
        assert not result.different
        assert file.stat().st_size < 7_000
        assert '"event":"snapshot"' in file.read_text().splitlines()[1]


async def test_a_wrong_decision_is_found(app: App, executors: EchoExecutors, log: DecisionFile) -> None:
    await serve(app, executors, "static", 10)
    lines = [json.loads(line) for line in log.path.read_text().splitlines()]
    wrong = next(line for line in lines if line.get("event") == "replica")
    wrong["replica"] = next(id for id, *_ in wrong["seen"]["replicas"] if id != wrong["replica"])
    log.path.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"event": "pa')

    found = CliRunner().invoke(cli, ["simulate", "--replay", str(log.path)])

    assert found.exit_code == 1
    assert f"logged {wrong['replica']}, repeated " in found.stdout
    assert "1 decisions are not repeated" in found.stderr


async def test_the_log_has_no_content_of_requests(app: App, executors: EchoExecutors, log: DecisionFile) -> None:
    await serve(app, executors, "least-tokens", 5)
    fields = {name for line in log.path.read_text().splitlines()[1:] for name in json.loads(line)}
    assert fields == {
        "event", "request_id", "type", "cell", "path", "reason", "seen", "snapshot", "invocation", "attempt", "replica",
        "invocations", "pending_tokens",
    }  # fmt: skip


HEADER = '{"format": "cornserve/decisions", "version": 1, "process": "gateway"}\n'


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "line 1: must have the format 'cornserve/decisions', version 1"),
        ('{"format": "cornserve/decisions", "version": 2}\n', "line 1: must have the format"),
        (HEADER + "[]\n", "line 2: must be a JSON object"),
        (HEADER + "{}\n", "line 2: is not a decision: KeyError('event')"),
        (HEADER + '{"event": "path"}\n', "line 2: is not a decision: KeyError('seen')"),
        (HEADER + '{"event": "snapshot", "number": [], "table": {}}\n', "line 2: is not a decision: "),
        (HEADER + '{"event": "cells", "seen": {"now": NaN}}\n', "line 2: is not valid JSON: NaN"),
        (
            HEADER + '{"event": "replica", "reason": "best", "seen": {"key": "", "size": {}}, "invocation": 0}\n',
            "unknown",
        ),
        (HEADER + "x" * (1 << 20) + "\n", "line 2: is longer than 1 MiB"),
    ],
)
def test_a_file_that_is_no_log_is_refused_by_line(tmp_path: Path, text: str, error: str) -> None:
    (path := tmp_path / "log.jsonl").write_text(text)
    with pytest.raises(InvalidInputError) as raised:
        DecisionReplay().run(path)
    assert error in str(raised.value)
