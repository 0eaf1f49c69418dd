"""The endpoints of executor groups that several apps may share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence, Set

from cornserve.app.record import GroupStatus, ReplicaState, ReplicaStatus
from cornserve.gateway.executor_endpoints import Endpoints, ExecutorEndpoints, GroupEndpoints
from tests.unit.gateway.published_route import ready_group


class Source:
    def __init__(self, reports: Sequence[Endpoints]) -> None:
        self._reports = reports

    async def watch(self) -> AsyncIterator[Endpoints]:
        for report in self._reports:
            yield report


def group(ready: dict[str, str], last: dict[str, str] | None = None) -> GroupEndpoints:
    return GroupEndpoints(ready, last or {})


def failed_group(key: str, message: str) -> GroupStatus:
    replica = ReplicaStatus(id="replica", state=ReplicaState.FAILED, message=message)
    return GroupStatus(key=key, wanted=1, replicas=[replica])


def test_the_most_recent_status_of_a_shared_group_counts() -> None:
    endpoints = ExecutorEndpoints(None)
    endpoints.update_app("a", [ready_group("shared", ["old:1"])])
    endpoints.update_app("b", [ready_group("shared", ["new:1"])])
    assert endpoints.replicas("shared") == {"new:1": "replica-new:1"}

    endpoints.update_app("a", [ready_group("shared", ["newest:1"])])
    assert endpoints.replicas("shared") == {"newest:1": "replica-newest:1"}

    endpoints.update_app("a", [])
    assert endpoints.replicas("shared") == {"new:1": "replica-new:1"}
    endpoints.update_app("b", [])
    assert endpoints.replicas("shared") is None


def test_a_change_names_the_old_and_the_new_groups_of_the_app() -> None:
    endpoints = ExecutorEndpoints(None)
    endpoints.update_app("other", [ready_group("other", [])])
    assert endpoints.update_app("a", [ready_group("old", [])]) == {"old"}
    assert endpoints.update_app("a", [ready_group("new", [])]) == {"old", "new"}
    assert endpoints.by_group(["old", "new", "other"]) == {"new": [], "other": []}


def test_a_group_has_failed_when_all_its_replicas_have_failed() -> None:
    endpoints = ExecutorEndpoints(None)
    endpoints.update_app("a", [failed_group("echo", "out of memory"), ready_group("ready", ["x:1"])])
    assert [endpoints.failure(key) for key in ("echo", "ready", "unknown")] == ["out of memory", "", ""]


async def test_a_report_names_the_groups_that_differ_from_the_last_one() -> None:
    reports: list[Endpoints] = [
        {"a": group({"x:1": "x"}), "b": group({"y:1": "y"})},
        {"a": group({"x:1": "x"}), "b": group({"y:1": "z"})},
        {"a": group({"x:1": "x"}), "c": group({})},
    ]

    endpoints, changes = ExecutorEndpoints(Source(reports)), list[Set[str]]()
    await endpoints.follow(changes.append)

    assert changes == [{"a", "b"}, {"b"}, {"b", "c"}]
    assert endpoints.by_group(["a", "b", "c"]) == {"a": ["x:1"], "c": []}


async def test_replicas_that_were_ready_are_used_until_others_are_ready() -> None:
    reports = [{"a": group({"x:1": "x"}, {"y:1": "y"}), "b": group({}, {"y:1": "y"})}]
    endpoints = ExecutorEndpoints(Source(reports))
    await endpoints.follow(lambda _: None)

    assert [endpoints.replicas(key) for key in "ab"] == [{"x:1": "x"}, {"y:1": "y"}]
    assert [endpoints.replicas(key, is_left=True) for key in "ab"] == [{"x:1": "x"}, {}]
    assert [endpoints.is_waiting(key) for key in "abc"] == [False, True, False]
