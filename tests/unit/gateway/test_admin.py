"""`/admin/v1`, probes and metrics."""

from __future__ import annotations

import asyncio
import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import httpx2 as httpx
import pytest

from cornserve.app.record import AppStatus, GroupStatus, Phase, ReplicaExit, ReplicaState, ReplicaStatus
from cornserve.app.spec import AppSource, AppSpec, Restart
from cornserve.app_host.errors import ForkServerError
from cornserve.app_host.fork_client import ForkServer
from cornserve.control.store.base import (
    APPS,
    FieldConflictError,
    RecordRejectedError,
    Store,
    StoreError,
    StoreUnavailableError,
)
from cornserve.control.store.sqlite import SqliteStore
from cornserve.gateway.endpoints import app_events
from cornserve.gateway.endpoints.admin import MAX_SOURCE_BYTES
from cornserve.limits import Limits
from cornserve.observe.metrics_server import start_metrics_server
from cornserve.transport import Transport
from cornserve_executors.base.metrics import ExecutorMetrics
from tests.credentials import CREDENTIALS
from tests.loop_clock import LoopClock
from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.running_gateway import GatewayOptions, with_gateway_options
from tests.unit.gateway.sources import ECHO, EXITS, STEPS
from tests.waiting import until


async def test_a_deployed_app_is_stored_for_the_controller(gateway: httpx.AsyncClient, store: Store) -> None:
    response = await gateway.put("/admin/v1/apps/echo", json={"source": {"inline": ECHO}, "replicas": 2})

    assert response.status_code == 200
    assert response.json()["status"]["phase"] == "pending"
    record = await store.get(APPS, "echo")
    assert (record.spec.inline_source, record.spec.replicas) == (ECHO, 2)


async def test_the_memory_of_replicas_is_read_from_their_metrics(
    gateway: httpx.AsyncClient, store: Store, tmp_path: Path
) -> None:
    writer, reader = [
        Transport(tmp_path, CREDENTIALS, slab_bytes=64 << 20, request_bytes=32 << 20) for _ in ("writer", "reader")
    ]
    await writer.create_slab()
    ports = [
        start_metrics_server("127.0.0.1", 0, ExecutorMetrics(transport.metrics).registry)
        for transport in (writer, reader)
    ]
    await gateway.put("/admin/v1/apps/echo", json={"source": {"inline": ECHO}})
    record = await store.get(APPS, "echo")
    addresses: dict[str, str | None] = {
        "writer": f"127.0.0.1:{ports[0]}",
        "reader": f"127.0.0.1:{ports[1]}",
        "gone": "127.0.0.1:1",
        "starting": None,
    }
    replicas = [ReplicaStatus(id=id, state=ReplicaState.READY, metrics=metrics) for id, metrics in addresses.items()]
    status = AppStatus(phase=Phase.SERVING, generation=1, groups=[GroupStatus(key="k", wanted=4, replicas=replicas)])
    await store.update_status(APPS, "echo", status, record.version)

    memory = {each["id"]: each for each in (await gateway.get("/admin/v1/apps/echo?memory=true")).json()["memory"]}

    assert memory.keys() == {"writer", "reader"}
    assert all((each["limit"], each["used"]) == (64 << 20, 0) for each in memory.values())
    assert 0 < memory["writer"]["resident"] < 5 << 20
    assert memory["reader"]["resident"] == 0  # it has no slab yet
    assert all((each["protocols"], each["pulled_bytes"]) == (["tcp"], {}) for each in memory.values())
    assert (await gateway.get("/admin/v1/apps/echo/engines")).json() == {}  # none of them is a language model
    for transport in (writer, reader):
        await transport.stop()


async def test_deploying_an_unchanged_spec_creates_no_generation(gateway: httpx.AsyncClient) -> None:
    first = await gateway.put("/admin/v1/apps/echo", json={"source": {"inline": ECHO}})
    again = await gateway.put("/admin/v1/apps/echo", json={"source": {"inline": ECHO}})
    changed = await gateway.put("/admin/v1/apps/echo", json={"source": {"inline": ECHO + "\n"}})

    assert first.json() == again.json()
    assert changed.json()["generation"] == 2


async def test_redeploying_a_failed_app_is_a_new_try(gateway: httpx.AsyncClient, store: Store) -> None:
    await gateway.put("/admin/v1/apps/echo", json={"source": {"inline": ECHO}})
    record = await store.get(APPS, "echo")
    await store.update_status(APPS, "echo", AppStatus(phase=Phase.FAILED, generation=1), record.version)

    again = await gateway.put("/admin/v1/apps/echo", json={"source": {"inline": ECHO}})

    assert again.json()["generation"] == 2


async def test_scaling_changes_only_the_replicas(gateway: httpx.AsyncClient, store: Store) -> None:
    await gateway.put("/admin/v1/apps/echo", json={"source": {"inline": ECHO}})
    before = await store.get(APPS, "echo")

    scaled = await gateway.put("/admin/v1/apps/echo/scale", json={"replicas": 3})

    assert (scaled.json()["generation"], scaled.json()["spec"]["replicas"]) == (2, 3)
    after = await store.get(APPS, "echo")
    assert after.spec.code == before.spec.code
    assert after.spec == before.spec.model_copy(update={"replicas": 3})


async def test_one_executor_has_another_number_of_replicas(gateway: httpx.AsyncClient, store: Store) -> None:
    await gateway.put("/admin/v1/apps/echo", json={"source": {"inline": ECHO}, "replicas": 2})
    code = (await store.get(APPS, "echo")).spec.code

    scaled = await gateway.put("/admin/v1/apps/echo/scale", json={"executors": {"echo": 3}})
    redeployed = await gateway.put("/admin/v1/apps/echo", json={"source": {"inline": ECHO}})
    reset = await gateway.put("/admin/v1/apps/echo/scale", json={"replicas": 1})

    specs = [AppSpec.model_validate(response.json()["spec"]) for response in (scaled, redeployed, reset)]
    assert [spec.replicas_of("echo") for spec in specs] == [3, 3, 1]
    assert [spec.replicas_of("other") for spec in specs] == [2, 2, 1]
    assert {spec.code for spec in specs} == {code}


async def test_replicas_of_an_unknown_executor_are_refused(gateway: httpx.AsyncClient, store: Store) -> None:
    deployment = {"source": {"inline": ECHO}, "executor_replicas": {"lm": 3}}
    assert (await gateway.put("/admin/v1/apps/echo", json=deployment)).status_code == 400
    await gateway.put("/admin/v1/apps/echo", json={"source": {"inline": ECHO}})
    record = await store.get(APPS, "echo")
    status = AppStatus(groups=[GroupStatus(key="echo-1", executor="echo", wanted=1, replicas=[])])
    await store.update_status(APPS, "echo", status, record.version)

    refused = await gateway.put("/admin/v1/apps/echo/scale", json={"executors": {"lm": 3}})

    assert refused.status_code == 400
    assert "the app has no executor 'lm': choose from echo" in refused.json()["error"]["message"]


async def test_another_policy_keeps_the_code(gateway: httpx.AsyncClient, store: Store) -> None:
    await gateway.put("/admin/v1/apps/echo", json={"source": {"inline": ECHO}})
    before = await store.get(APPS, "echo")

    changed = await gateway.put(
        "/admin/v1/apps/echo", json={"source": {"inline": ECHO}, "policies": {"routing": "least-tokens"}}
    )

    policies = {
        "routing": "least-tokens",
        "binding": "early",
        "adaptation": None,
        "targets": None,
        "autoscaling": None,
        "log_decisions": False,
    }
    assert changed.json()["spec"]["policies"] == policies
    assert (await store.get(APPS, "echo")).spec.code == before.spec.code


async def test_an_unknown_policy_is_refused_with_the_known_ones(gateway: httpx.AsyncClient) -> None:
    response = await gateway.put(
        "/admin/v1/apps/echo", json={"source": {"inline": ECHO}, "policies": {"routing": "best"}}
    )

    assert response.status_code == 400
    error = response.json()["error"]
    assert (error["param"], error["code"]) == ("policies.routing", "invalid_app")
    assert "unknown routing policy 'best': use one of least-loaded, least-tokens, power-of-two" in error["message"]


async def test_deploying_without_replicas_keeps_their_number(gateway: httpx.AsyncClient) -> None:
    await gateway.put("/admin/v1/apps/echo", json={"source": {"inline": ECHO}})
    await gateway.put("/admin/v1/apps/echo/scale", json={"replicas": 3})

    kept = await gateway.put("/admin/v1/apps/echo", json={"source": {"inline": ECHO + "\n"}})
    set_ = await gateway.put("/admin/v1/apps/echo", json={"source": {"inline": ECHO}, "replicas": 2})

    assert [response.json()["spec"]["replicas"] for response in (kept, set_)] == [3, 2]


async def test_the_spec_of_a_record_can_be_deployed_unchanged(gateway: httpx.AsyncClient, store: Store) -> None:
    await gateway.put("/admin/v1/apps/echo", json={"source": {"inline": ECHO}})
    record = await store.get(APPS, "echo")
    await store.update_status(APPS, "echo", AppStatus(phase=Phase.FAILED, generation=1), record.version)
    tried = (await gateway.put("/admin/v1/apps/echo", json={"source": {"inline": ECHO}})).json()

    again = await gateway.put("/admin/v1/apps/echo", json=tried["spec"])
    other = await gateway.put("/admin/v1/apps/echo", json=tried["spec"] | {"restart": {"id": "7"}})

    assert again.json() == tried
    assert (tried["generation"], other.json()["generation"]) == (2, 3)


async def test_scaling_an_app_that_is_deleted_concurrently_returns_404(
    gateway: httpx.AsyncClient, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await gateway.put("/admin/v1/apps/echo", json={"source": {"inline": ECHO}})
    update_spec = store.update_spec

    async def delete_first(*args: Any) -> Any:
        await store.delete(APPS, "echo")
        return await update_spec(*args)

    monkeypatch.setattr(store, "update_spec", delete_first)
    response = await gateway.put("/admin/v1/apps/echo/scale", json={"replicas": 3})

    assert response.status_code == 404
    assert response.json()["error"]["code"] == "app_not_found"


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (FieldConflictError("spec.replicas (argocd-controller)"), 409, "field_conflict"),
        (RecordRejectedError("the API server refuses it"), 400, "invalid_app"),
    ],
)
async def test_a_write_that_the_store_refuses_has_the_reason(
    gateway: httpx.AsyncClient, store: Store, monkeypatch: pytest.MonkeyPatch, error: StoreError, status: int, code: str
) -> None:
    await gateway.put("/admin/v1/apps/echo", json={"source": {"inline": ECHO}})
    monkeypatch.setattr(store, "update_spec", AsyncMock(side_effect=error))
    response = await gateway.put("/admin/v1/apps/echo/scale", json={"replicas": 3})

    assert response.status_code == status
    assert response.json()["error"]["code"] == code
    assert response.json()["error"]["message"] == str(error)


@pytest.mark.parametrize("replicas", [-1, 65, 1.5, "many"])
async def test_an_invalid_number_of_replicas_is_rejected(
    gateway: httpx.AsyncClient, store: Store, replicas: Any
) -> None:
    await gateway.put("/admin/v1/apps/echo", json={"source": {"inline": ECHO}})

    response = await gateway.put("/admin/v1/apps/echo/scale", json={"replicas": replicas})

    assert response.status_code == 400
    assert response.json()["error"]["param"] == "replicas"
    assert (await store.get(APPS, "echo")).generation == 1


async def test_a_failed_app_cannot_be_scaled(gateway: httpx.AsyncClient, store: Store) -> None:
    assert (await gateway.put("/admin/v1/apps/echo/scale", json={"replicas": 2})).status_code == 404
    await gateway.put("/admin/v1/apps/echo", json={"source": {"inline": ECHO}})
    record = await store.get(APPS, "echo")
    await store.update_status(APPS, "echo", AppStatus(phase=Phase.FAILED, generation=1), record.version)

    response = await gateway.put("/admin/v1/apps/echo/scale", json={"replicas": 2})

    assert response.status_code == 409
    assert "redeploy it" in response.json()["error"]["message"]


@with_gateway_options(GatewayOptions(Limits(import_seconds=50)))
async def test_an_import_that_hangs_times_out_without_blocking_others(
    gateway: httpx.AsyncClient, clock: LoopClock
) -> None:
    source = "while True: pass\n" + ECHO
    hanging = asyncio.create_task(gateway.put("/admin/v1/apps/echo", json={"source": {"inline": source}}))

    assert (await gateway.put("/admin/v1/apps/echo", json={"source": {"inline": ECHO}})).status_code == 200

    clock.advance(50)
    error = (await hanging).json()["error"]
    assert error["code"] == "invalid_app"
    # A process that has not begun yet has no location, for which app_host/test_load.py waits.
    assert "importing the app takes longer than 50 s (limit import-sec" in error["message"]


async def test_an_app_that_cannot_be_checked_can_be_deployed_later(
    gateway: httpx.AsyncClient, fork_server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fork_server, "fork", AsyncMock(side_effect=ForkServerError("no more processes")))

    response = await gateway.put("/admin/v1/apps/echo", json={"source": {"inline": ECHO}})

    assert response.status_code == 503
    assert response.json()["error"]["message"] == "the app cannot be checked: no more processes"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "set exactly one of model, source"),
        ([], "the body must be a JSON object, not an array"),
        ({"source": {"inline": ECHO}, "model": {"id": "x"}}, "set exactly one of model, source"),
        (
            {
                "model": {"id": "a/b", "storage": {"host_path": {"path": "/models"}}},
                "executors": [{"name": "*", "pod_template": {}, "gpu_type": "l4"}],
            },
            "model.storage, executors.pod_template: needs Kubernetes, and this instance runs on one ",
        ),
        ({"source": {"config_map_key_ref": {"name": "a", "key": "b"}}}, "source.config_map_key_ref: needs Kubernetes"),
        ({"source": {"inline": ECHO, "revision": "main"}}, "unknown or unsupported field: 'source.revision'"),
        ({"source": {"inline": ECHO}, "gpus": 1}, "unknown or unsupported field: 'gpus'"),
        ({"source": {"inline": ECHO}, "replicas": -1}, "replicas"),
        ({"source": {"inline": ECHO}, "replicas": 100_000}, "replicas: must be less than or equal to 64, not 100000"),
        ({"source": {"inline": "x = ("}}, "app.py:1: SyntaxError"),
        (
            {"source": {"inline": "import ctypes\nctypes.string_at(0)"}},
            "app.py:2 in <module>: the app's process was killed by SIG",
        ),
        ({"source": {"inline": "import os\nos.kill(os.getpid(), 9)"}}, "the app's process was killed by SIGKILL"),
        ({"source": {"inline": STEPS}}, "defines the app 'steps', but is deployed as 'echo': change the name"),
        ({"model": {"id": "/no/such/directory"}}, "is not a model directory"),
        ({"model": {"id": "../relative"}}, "neither an absolute path nor a Hugging Face id"),
        ({"model": {"id": "not/an/id"}}, "neither an absolute path nor a Hugging Face id"),
        ({"source": {"inline": ECHO.replace("EchoTask()", "EchoTask(delay=1)")}}, "delay"),
        ({"source": {"inline": EXITS}}, "the app exits when it is loaded: SystemExit(3)"),
    ],
)
async def test_an_invalid_app_is_rejected_and_not_stored(
    gateway: httpx.AsyncClient, store: Store, body: object, message: str
) -> None:
    response = await gateway.put("/admin/v1/apps/echo", json=body)

    assert response.status_code == 400
    assert message in response.json()["error"]["message"]
    assert (await store.list(APPS)).records == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Echo", "invalid app name 'Echo': use 1 to 63 lower case letters"),
        ("e" * 64, "invalid app name 'eeee"),
        ("other", "the source defines the app 'echo', but is deployed as 'other'"),
    ],
)
async def test_an_app_with_a_wrong_name_is_rejected_before_its_source_runs(
    gateway: httpx.AsyncClient, tmp_path: Path, name: str, message: str
) -> None:
    ran = tmp_path / "ran"
    source = f"import pathlib\npathlib.Path({str(ran)!r}).touch()\n{ECHO}"
    response = await gateway.put(f"/admin/v1/apps/{name}", json={"source": {"inline": source}})

    assert response.status_code == 400
    assert message in response.json()["error"]["message"]
    assert not ran.exists()


async def test_a_source_that_is_too_large_is_a_413_that_names_both_sizes(gateway: httpx.AsyncClient) -> None:
    response = await gateway.put("/admin/v1/apps/echo", json={"source": {"inline": ECHO + "#" * MAX_SOURCE_BYTES}})

    assert response.status_code == 413
    assert re.search(f"has 200\\d\\d\\d bytes .* at most {MAX_SOURCE_BYTES} ", response.json()["error"]["message"])


async def test_a_deleted_app_is_no_longer_served(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy(ECHO)

    assert (await gateway.delete("/admin/v1/apps/echo")).status_code == 204
    await until(lambda: _is_gone(gateway, "echo"))
    assert (await gateway.delete("/admin/v1/apps/echo")).status_code == 404
    assert (await gateway.get("/admin/v1/apps/echo")).status_code == 404


async def _is_gone(gateway: httpx.AsyncClient, name: str) -> bool:
    return (await gateway.get(f"/v1/models/{name}")).status_code == 404


async def test_events_report_each_change_until_deletion(gateway: httpx.AsyncClient, store: Store) -> None:
    await gateway.put("/admin/v1/apps/echo", json={"source": {"inline": ECHO}})
    seen: list[tuple[str, str]] = []
    async with asyncio.timeout(60), gateway.stream("GET", "/admin/v1/apps/echo/events") as response:
        kind = ""
        async for line in response.aiter_lines():
            if line.startswith("event: "):
                kind = line.removeprefix("event: ")
            elif line.startswith("data: "):
                seen.append((kind, json.loads(line.removeprefix("data: "))["status"]["phase"]))
                if len(seen) == 1:
                    record = await store.get(APPS, "echo")
                    await store.update_status(APPS, "echo", AppStatus(phase=Phase.STARTING), record.version)
                elif len(seen) == 2:
                    await gateway.delete("/admin/v1/apps/echo")

    assert seen == [("put", "pending"), ("put", "starting"), ("deleted", "starting")]


async def test_events_of_an_unchanged_app_continue_after_compaction(gateway: httpx.AsyncClient, tmp_path: Path) -> None:
    await gateway.put("/admin/v1/apps/echo", json={"source": {"inline": ECHO}})
    forgetful = await SqliteStore.open(tmp_path / "state.db", keep=1)
    for n in range(3):
        await forgetful.create(APPS, f"other{n}", AppSpec(source=AppSource(inline="-")))
    await forgetful.close()

    async with asyncio.timeout(60), gateway.stream("GET", "/admin/v1/apps/echo/events") as response:
        lines = response.aiter_lines()
        assert await anext(lines) == "event: put"
        await gateway.delete("/admin/v1/apps/echo")
        assert "event: deleted" in [line async for line in lines]


async def test_pauses_of_an_event_stream_contain_comments(
    gateway: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_events, "KEEPALIVE_SECONDS", 0.05)
    await gateway.put("/admin/v1/apps/echo", json={"source": {"inline": ECHO}})

    async with asyncio.timeout(60), gateway.stream("GET", "/admin/v1/apps/echo/events") as response:
        comments = 0
        async for line in response.aiter_lines():
            comments += line.startswith(":")
            if comments == 2:
                await gateway.delete("/admin/v1/apps/echo")

    assert comments >= 2  # The events after the comments arrive as well.


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (StoreUnavailableError("the disk is full"), 503, "the disk is full"),
        (RuntimeError("a secret"), 500, "the gateway failed: see its log"),
    ],
)
async def test_every_failure_has_the_error_format(
    gateway: httpx.AsyncClient,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    status: int,
    message: str,
) -> None:
    monkeypatch.setattr(store, "list", AsyncMock(side_effect=error))

    response = await gateway.get("/admin/v1/apps")

    assert response.status_code == status
    assert response.json()["error"]["message"] == message
    assert response.json()["error"]["type"] == "server_error"


async def test_probes_and_metrics_respond(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy(ECHO)
    await gateway.post("/v1/apps/echo/invoke", json={"text": "a"})

    assert (await gateway.get("/healthz")).status_code == 200
    assert 'cornserve_gateway_requests_total{app="echo",status="200"} 1.0' in (await gateway.get("/metrics")).text


async def test_unknown_paths_and_methods_have_the_error_format(gateway: httpx.AsyncClient) -> None:
    unknown = (await gateway.get("/v2/nothing")).json()["error"]
    assert unknown["message"] == "unknown path '/v2/nothing': see the paths in /docs"
    assert (await gateway.delete("/v1/models")).status_code == 405
    parameter = (await gateway.get("/admin/v1/apps/echo/logs?lines=-1")).json()["error"]
    assert parameter["param"] == "lines"
    assert parameter["message"] == "lines: must be greater than or equal to 1, not '-1'"


async def test_a_restart_is_a_new_generation_of_the_same_app(gateway: httpx.AsyncClient, store: Store) -> None:
    await gateway.put("/admin/v1/apps/echo", json={"source": {"inline": ECHO}})
    before = await store.get(APPS, "echo")

    responses = [await gateway.post("/admin/v1/apps/echo/restart") for _ in range(2)]

    assert [response.json()["generation"] for response in responses] == [2, 3]
    first, second = (Restart(**response.json()["spec"]["restart"]) for response in responses)
    assert before.spec.restart is None
    assert first.id != second.id
    after = await store.get(APPS, "echo")
    assert after.spec == before.spec.model_copy(update={"restart": after.spec.restart})
    assert (await gateway.post("/admin/v1/apps/unknown/restart")).status_code == 404


async def test_one_executor_is_restarted(gateway: httpx.AsyncClient, store: Store) -> None:
    await gateway.put("/admin/v1/apps/echo", json={"source": {"inline": ECHO}, "restart": {"id": "all"}})
    early = await gateway.post("/admin/v1/apps/echo/restart?executor=echo")
    record = await store.get(APPS, "echo")
    status = AppStatus(groups=[GroupStatus(key="echo-1", executor="echo", wanted=1, replicas=[])])
    await store.update_status(APPS, "echo", status, record.version)

    restarted = await gateway.post("/admin/v1/apps/echo/restart?executor=echo")
    unknown = await gateway.post("/admin/v1/apps/echo/restart?executor=lm")
    invalid = await gateway.post("/admin/v1/apps/echo/restart?executor=/")

    restart = Restart(**restarted.json()["spec"]["restart"])
    assert (restart.id, [*restart.executors]) == ("all", ["echo"])
    assert (early.status_code, early.json()["error"]["code"]) == (409, "cannot_restart")
    assert (unknown.status_code, invalid.status_code) == (400, 400)
    assert unknown.json()["error"]["message"] == "the app has no executor 'lm': choose from echo"
    assert (await store.get(APPS, "echo")).spec.restart == restart

    whole = Restart(**(await gateway.post("/admin/v1/apps/echo/restart")).json()["spec"]["restart"])
    assert whole.id != restart.id
    assert whole.executors == restart.executors


async def test_only_executors_of_the_app_can_have_texts_for_a_restart(gateway: httpx.AsyncClient) -> None:
    deployed = {"source": {"inline": ECHO}, "restart": {"executors": {"echo": "1"}}}
    await gateway.put("/admin/v1/apps/echo", json=deployed)

    unknown = await gateway.put("/admin/v1/apps/echo", json=deployed | {"restart": {"executors": {"lm": "1"}}})
    kept = await gateway.put("/admin/v1/apps/echo", json={"source": {"inline": ECHO}})
    stages = "from cornserve_echo.stages import caption_app\n\napp = caption_app('echo', encoder=0.1, llm=0.1)\n"
    removed = await gateway.put("/admin/v1/apps/echo", json={"source": {"inline": stages}})

    message = "restart.executors: the app has no executor 'lm': choose from echo"
    assert (unknown.status_code, unknown.json()["error"]["message"]) == (400, message)
    assert kept.json()["spec"]["restart"]["executors"] == {"echo": "1"}
    assert removed.json()["spec"]["restart"]["executors"] == {}


async def test_at_most_sixteen_executors_are_restarted_alone(gateway: httpx.AsyncClient, store: Store) -> None:
    await gateway.put("/admin/v1/apps/echo", json={"source": {"inline": ECHO}})
    record = await store.get(APPS, "echo")
    names = [f"echo-{number}" for number in range(17)]
    groups = [GroupStatus(key=name, executor=name, wanted=1, replicas=[]) for name in names]
    await store.update_status(APPS, "echo", AppStatus(groups=groups), record.version)

    most = await gateway.post("/admin/v1/apps/echo/restart", params={"executor": names[:16]})
    more = await gateway.post("/admin/v1/apps/echo/restart", params={"executor": names[16]})

    assert (most.status_code, more.status_code) == (200, 409)
    assert "at most 16 executors of an app can be restarted alone" in more.json()["error"]["message"]
    stored = (await store.get(APPS, "echo")).spec.restart
    assert stored == Restart(**most.json()["spec"]["restart"])
    assert [*stored.executors] == names[:16]


async def test_replicas_that_are_no_processes_of_this_machine_are_not_killed(
    gateway: httpx.AsyncClient, deploy: Deploy
) -> None:
    await deploy(ECHO)

    unknown = await gateway.post("/admin/v1/apps/nothing/replicas/x/kill")
    refused = await gateway.post("/admin/v1/apps/echo/replicas/x/kill")

    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "app_not_found")
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "cannot_kill")


async def test_the_log_of_one_replica_or_gateway_is_read_alone(gateway: httpx.AsyncClient, store: Store) -> None:
    await gateway.put("/admin/v1/apps/echo", json={"source": {"inline": ECHO}})
    record = await store.get(APPS, "echo")
    replicas = [ReplicaStatus(id=f"echo-{number}", state=ReplicaState.READY) for number in (1, 2)]
    exit = ReplicaExit(replica="echo-0", group="echo", time=datetime(2026, 1, 1, tzinfo=UTC), message="killed")
    groups = [GroupStatus(key="echo", wanted=2, replicas=replicas)]
    status = AppStatus(phase=Phase.SERVING, generation=1, groups=groups, exits=[exit])
    await store.update_status(APPS, "echo", status, record.version)

    for replica, has_ended in (("echo-0", True), ("echo-2", False)):
        response = await gateway.get("/admin/v1/apps/echo/logs", params={"replica": replica})
        [log] = response.json()["replicas"]
        assert (log["id"], log["lines"], "exit" in log) == (replica, [f"{replica} wrote this"], has_ended)


@pytest.mark.parametrize("replica", ["", "echo-9", "gateway", "../../state.db", "\0", "x" * 5000, "<b>"])
async def test_the_log_of_an_unknown_replica_is_a_404(gateway: httpx.AsyncClient, store: Store, replica: str) -> None:
    await gateway.put("/admin/v1/apps/echo", json={"source": {"inline": ECHO}})

    refused = await gateway.get("/admin/v1/apps/echo/logs", params={"replica": replica})

    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "replica_not_found")


async def test_without_kubernetes_the_history_is_the_last_exits_and_the_current_state(
    gateway: httpx.AsyncClient, store: Store
) -> None:
    await gateway.put("/admin/v1/apps/echo", json={"source": {"inline": ECHO}})
    record = await store.get(APPS, "echo")
    replica = ReplicaStatus(id="echo-1", state=ReplicaState.FAILED, message="out of words")
    groups = [GroupStatus(key="echo", wanted=1, replicas=[replica])]
    time = datetime(2026, 1, 1, tzinfo=UTC)
    exit = ReplicaExit(replica="echo-0", group="echo", time=time, message="killed by signal 9 (Killed)")
    status = AppStatus(phase=Phase.STARTING, generation=1, message="waiting", groups=groups, exits=[exit])
    await store.update_status(APPS, "echo", status, record.version)

    logs = (await gateway.get("/admin/v1/apps/echo/logs")).json()["replicas"]
    events = (await gateway.get("/admin/v1/apps/echo/history")).json()["events"]

    expected = [
        ("Warning", "ExecutorExited", "Replica/echo-0", "killed by signal 9 (Killed)"),
        ("Normal", "Starting", "App/echo", "waiting"),
        ("Warning", "Failed", "Replica/echo-1", "out of words"),
    ]
    assert [(log["id"], "exit" in log) for log in logs[-2:]] == [("echo-0", True), ("echo-1", False)]
    assert [(event["type"], event["reason"], event["object"], event["message"]) for event in events] == expected
    assert (await gateway.get("/admin/v1/apps/unknown/history")).status_code == 404
