from __future__ import annotations

from datetime import UTC, datetime
from json import dumps, loads
from typing import Any

import pytest
from hypothesis import given, settings

from cornserve.app.record import AppStatus, FailureReason, GroupStatus, Phase, ReplicaState, ReplicaStatus
from cornserve.kubernetes_resources.app_status import MAX_LOG_LINES, MAX_REPLICA_MESSAGE_CHARACTERS
from cornserve.kubernetes_resources.status_mapping import decode_status, encode_status
from tests.unit.kubernetes_resources.strategies import app_statuses

NOW = datetime(2026, 11, 22, 13, 0, tzinfo=UTC)
LATER = datetime(2026, 11, 22, 14, 0, tzinfo=UTC)


def stored(status: AppStatus) -> AppStatus:
    """Returns the status as it is read after it was written."""
    return decode_status(encode_status(status))


def group(*states: ReplicaState, wanted: int | None = None, key: str = "llm-1") -> GroupStatus:
    return GroupStatus(
        key=key,
        executor="llm",
        gpus=2,
        wanted=len(states) if wanted is None else wanted,
        replicas=[ReplicaStatus(id=f"{key}-{number}", state=state) for number, state in enumerate(states)],
    )


def waiting(*reasons: str) -> GroupStatus:
    """Returns an executor whose replicas start, and are not ready for these reasons."""
    group_status = group(*[ReplicaState.STARTING] * len(reasons))
    replicas = [
        replica.model_copy(update={"reason": reason})
        for replica, reason in zip(group_status.replicas, reasons, strict=True)
    ]
    return group_status.model_copy(update={"replicas": replicas})


READY, STARTING, FAILED = ReplicaState.READY, ReplicaState.STARTING, ReplicaState.FAILED
SERVING = AppStatus(phase=Phase.SERVING, generation=2, serving_generation=2, groups=[group(READY)])


HIDDEN = GroupStatus(key="llm-1", wanted=1, replicas=[ReplicaStatus(id="llm-1-0", state=READY, reason="NoEndpoints")])
"""A group that gateways cannot find."""


def conditions(status: AppStatus) -> dict[str, tuple[str, str]]:
    return {
        condition["type"]: (condition["status"], condition["reason"])
        for condition in encode_status(status)["conditions"]
    }


@given(app_statuses())
@settings(max_examples=30)
def test_every_status_is_read_back_unchanged(status: AppStatus) -> None:
    assert decode_status(loads(dumps(encode_status(status)))) == status


@given(app_statuses())
@settings(max_examples=30)
def test_an_unchanged_state_is_an_identical_status(status: AppStatus) -> None:
    written = encode_status(status, now=NOW)
    assert encode_status(decode_status(written), written, now=LATER) == written


@given(app_statuses())
@settings(max_examples=30)
def test_every_condition_exists_with_the_generation_that_it_describes(status: AppStatus) -> None:
    found = encode_status(status).get("conditions", [])
    if status != AppStatus():
        assert [condition["type"] for condition in found] == [
            "Accepted", "Planned", "Progressing", "Available", "Ready", "ReplicasReady", "Degraded"
        ]  # fmt: skip
    assert all(condition["observedGeneration"] == status.generation for condition in found)


def test_only_conditions_with_another_status_have_a_new_time() -> None:
    starting = AppStatus(phase=Phase.STARTING, generation=2, groups=[group(STARTING)])
    first = encode_status(starting, now=NOW)

    second = encode_status(SERVING, first, now=LATER)

    times = {condition["type"]: condition["lastTransitionTime"] for condition in second["conditions"]}
    changed = {type_ for type_, time in times.items() if time == "2026-11-22T14:00:00Z"}
    assert changed == {"Progressing", "Available", "Ready", "ReplicasReady"}
    assert times["Accepted"] == "2026-11-22T13:00:00Z"


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (
            AppStatus(phase=Phase.STARTING, generation=1, message="is being loaded"),
            {"Accepted": ("Unknown", "Loading"), "Progressing": ("True", "Loading"), "Ready": ("False", "Loading")},
        ),
        (
            AppStatus(phase=Phase.STARTING, generation=1, groups=[group(STARTING)]),
            {
                "Accepted": ("True", "Valid"),
                "Progressing": ("True", "Starting"),
                "Available": ("False", "NoRoute"),
                "Ready": ("False", "Starting"),
                "ReplicasReady": ("False", "Starting"),
            },
        ),
        (
            AppStatus(phase=Phase.STARTING, generation=2, serving_generation=1, groups=[group(STARTING)]),
            {
                "Progressing": ("True", "RollingOut"),
                "Available": ("True", "Serving"),
                "Ready": ("False", "RollingOut"),
            },
        ),
        (
            SERVING,
            {
                "Progressing": ("False", "Complete"),
                "Available": ("True", "Serving"),
                "Ready": ("True", "Serving"),
                "ReplicasReady": ("True", "Complete"),
                "Degraded": ("False", "AsDesired"),
            },
        ),
        (
            SERVING.model_copy(update={"groups": [group(READY, STARTING)]}),
            {
                "Progressing": ("True", "Scaling"),
                "Ready": ("True", "Serving"),
                "ReplicasReady": ("False", "Scaling"),
                "Degraded": ("False", "AsDesired"),
            },
        ),
        (
            SERVING.model_copy(update={"groups": [group(READY), group(READY, READY, wanted=1)]}),
            {"Ready": ("True", "Serving"), "ReplicasReady": ("False", "Scaling")},
        ),
        (
            SERVING.model_copy(update={"cells": 2}),
            {"Planned": ("True", "Cells"), "Ready": ("True", "Serving")},
        ),
        (
            SERVING.model_copy(update={"groups": [group(READY, FAILED)]}),
            {"Ready": ("True", "Serving"), "Degraded": ("True", "ReplicaFailed")},
        ),
        (
            AppStatus(phase=Phase.STARTING, generation=1, groups=[waiting("PullingImage", "InsufficientCapacity")]),
            {"Progressing": ("True", "InsufficientCapacity"), "Degraded": ("True", "InsufficientCapacity")},
        ),
        (
            SERVING.model_copy(update={"groups": [group(READY), waiting("InsufficientCapacity")]}),
            {
                "Progressing": ("True", "Scaling"),
                "Available": ("True", "Serving"),
                "Degraded": ("True", "InsufficientCapacity"),
            },
        ),
        (
            AppStatus(phase=Phase.STARTING, generation=1, groups=[waiting("PullingImage")]),
            {"Progressing": ("True", "PullingImage"), "Degraded": ("False", "AsDesired")},
        ),
        (
            SERVING.model_copy(update={"groups": [group(READY, wanted=2)]}),
            {"Ready": ("True", "Serving"), "Degraded": ("True", "ReplicasMissing")},
        ),
        (
            SERVING.model_copy(update={"phase": Phase.STARTING, "groups": [group(STARTING)]}),
            {"Available": ("False", "ReplicasMissing"), "Ready": ("False", "RollingOut")},
        ),
        (
            SERVING.model_copy(
                update={"phase": Phase.STARTING, "groups": [HIDDEN], "unreachable": "gateways cannot find it"}
            ),
            {
                "Progressing": ("True", "NoEndpoints"),
                "Available": ("False", "NoEndpoints"),
                "Ready": ("False", "NoEndpoints"),
                "Degraded": ("True", "NoEndpoints"),
            },
        ),
        (
            AppStatus(phase=Phase.STARTING, generation=2, serving_generation=1, groups=[HIDDEN]),
            {"Available": ("True", "Serving"), "Ready": ("False", "NoEndpoints"), "Degraded": ("True", "NoEndpoints")},
        ),
        (
            AppStatus(phase=Phase.PARKED, generation=3),
            {
                "Progressing": ("False", "ScaledToZero"),
                "Available": ("False", "ScaledToZero"),
                "ReplicasReady": ("True", "Complete"),
            },
        ),
        (
            AppStatus(phase=Phase.FAILED, generation=1, reason=FailureReason.IMPORT_FAILED, message="app.py:1: no"),
            {"Accepted": ("False", "ImportFailed"), "Ready": ("False", "ImportFailed")},
        ),
        (
            AppStatus(phase=Phase.FAILED, generation=2, reason=FailureReason.EXECUTOR_FAILED, serving_generation=1),
            {
                "Accepted": ("True", "Valid"),
                "Progressing": ("False", "ExecutorFailed"),
                "Available": ("True", "Serving"),
                "Ready": ("False", "ExecutorFailed"),
                "ReplicasReady": ("False", "ExecutorFailed"),
                "Degraded": ("True", "ExecutorFailed"),
            },
        ),
        (
            SERVING.model_copy(update={"suspended": "its code exits"}),
            {"Available": ("False", "Suspended"), "Ready": ("False", "Suspended"), "Degraded": ("True", "Suspended")},
        ),
    ],
)
def test_conditions_report_the_state(status: AppStatus, expected: dict[str, tuple[str, str]]) -> None:
    found = conditions(status)
    assert {type_: found[type_] for type_ in expected} == expected


def test_degraded_contains_the_last_log_lines() -> None:
    logs = [f"line {number}" for number in range(9)]
    failed = AppStatus(
        phase=Phase.FAILED, generation=1, reason=FailureReason.EXECUTOR_FAILED, message="did not start", logs=logs
    )

    degraded = next(found for found in encode_status(failed)["conditions"] if found["type"] == "Degraded")

    assert degraded["message"] == "did not start\nline 4\nline 5\nline 6\nline 7\nline 8"


def test_the_scale_counts_complete_sets_of_executors() -> None:
    status = SERVING.model_copy(
        update={
            "groups": [
                group(READY, READY, ReplicaState.DRAINING, key="llm-1"),
                group(READY, STARTING, STARTING, key="encoder-1"),
            ]
        }
    )

    encoded = encode_status(status, url="http://cornserve.default.svc/v1")

    assert (encoded["replicas"], encoded["readyReplicas"], encoded["gpus"]) == (2, 1, 10)
    planned = encode_status(status.model_copy(update={"cells": 2}))
    assert (planned["replicas"], planned["readyReplicas"], planned["gpus"]) == (5, 3, 10)
    assert encoded["selector"] == "cornserve.ai/executor in (encoder-1,llm-1)"
    assert encoded["url"] == "http://cornserve.default.svc/v1"


def test_a_status_is_bounded_and_has_no_addresses() -> None:
    replicas = [
        ReplicaStatus(
            id=f"p-{number:03}", state=READY, message="x" * 9999, endpoint="10.0.0.1:9000", metrics="10.0.0.1:9002"
        )
        for number in range(200)
    ]
    large = AppStatus(
        phase=Phase.FAILED,
        generation=1,
        message="m" * 99_999,
        logs=["l" * 9999] * 99,
        groups=[GroupStatus(key="a-1", wanted=200, replicas=replicas)],
    )

    encoded = dumps(encode_status(large))

    assert "10.0.0.1" not in encoded
    assert len(encoded) < 300_000
    read: Any = decode_status(loads(encoded))
    assert len(read.logs) == MAX_LOG_LINES
    assert {len(replica.message) for replica in read.groups[0].replicas} == {MAX_REPLICA_MESSAGE_CHARACTERS}
    assert stored(large) == stored(stored(large)) == read
