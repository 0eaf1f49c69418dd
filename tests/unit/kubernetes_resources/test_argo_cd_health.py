"""The health check of Argo CD, run by the Lua that Argo CD uses (5.1), on the statuses that the controller writes."""

from __future__ import annotations

from typing import Any

import pytest
from lupa.lua51 import LuaRuntime

from cornserve.app.record import (
    AppStatus,
    FailureReason,
    GroupStatus,
    Phase,
    PlanningStep,
    ReplicaState,
    ReplicaStatus,
)
from cornserve.kubernetes_resources.status_mapping import encode_status
from scripts.cluster.programs import ROOT

SCRIPT = (ROOT / "kubernetes" / "argocd" / "app_health.lua").read_text()


def health(app: dict[str, Any]) -> tuple[str, str]:
    """Returns the status and the message."""
    lua = LuaRuntime(unpack_returned_tuples=True)
    lua.globals().obj = lua.table_from(app, recursive=True)
    found = lua.execute(SCRIPT)
    return found["status"], found["message"]


def app(status: AppStatus, generation: int = 1) -> dict[str, Any]:
    return {"metadata": {"name": "chat", "generation": generation}, "status": encode_status(status)}


def group(*states: ReplicaState, wanted: int = 2, reason: str = "") -> GroupStatus:
    replicas = [ReplicaStatus(id=f"llm-{number}", state=state, reason=reason) for number, state in enumerate(states)]
    return GroupStatus(key="llm-1", executor="llm", wanted=wanted, replicas=replicas)


READY, STARTING, FAILED = ReplicaState.READY, ReplicaState.STARTING, ReplicaState.FAILED
SERVING = AppStatus(
    phase=Phase.SERVING, generation=1, serving_generation=1, message="serves", groups=[group(READY, READY)]
)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (AppStatus(), ("Progressing", "the controller has not seen this generation")),
        (AppStatus(phase=Phase.STARTING, generation=1, message="imports"), ("Progressing", "imports")),
        (
            AppStatus(phase=Phase.STARTING, generation=1, step=PlanningStep.PROFILING, message="measures"),
            ("Progressing", "measures"),
        ),
        (
            AppStatus(phase=Phase.STARTING, generation=1, message="loads", groups=[group(STARTING, STARTING)]),
            ("Progressing", "loads"),
        ),
        (
            SERVING.model_copy(update={"groups": [group(READY, STARTING)]}),
            ("Progressing", "1 of 2 replicas are ready, and 2 run"),
        ),
        (SERVING, ("Healthy", "all replicas are ready, and no others run")),
        (
            AppStatus(phase=Phase.PARKED, generation=1, message="0 replicas"),
            ("Suspended", "0 replicas"),
        ),
        (
            SERVING.model_copy(update={"groups": [group(READY, FAILED)]}),
            ("Degraded", "llm-1 has failed"),
        ),
        (SERVING.model_copy(update={"suspended": "its code exits"}), ("Degraded", "its code exits")),
        (
            AppStatus(phase=Phase.FAILED, generation=1, reason=FailureReason.IMPORT_FAILED, message="app.py:1: no"),
            ("Degraded", "app.py:1: no"),
        ),
    ],
)
def test_an_app_has_the_health_of_its_conditions(status: AppStatus, expected: tuple[str, str]) -> None:
    assert health(app(status)) == expected


def test_conditions_of_an_earlier_generation_say_nothing() -> None:
    assert health(app(SERVING, generation=2)) == ("Progressing", "the controller has not seen this generation")


def test_an_app_without_a_status_progresses() -> None:
    assert health({"metadata": {"name": "chat", "generation": 1}})[0] == "Progressing"
