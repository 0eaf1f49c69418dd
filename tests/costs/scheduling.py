"""Distributes groups of tests among pytest-xdist workers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from xdist.remote import Producer  # type: ignore[import-untyped]
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]
from xdist.workermanage import WorkerController  # type: ignore[import-untyped]

from tests.costs.budgets import Budgets, Tier

SEPARATE = (
    "tests/cluster/chaos/",
    "tests/integration/benchmarks/test_benchmarks.py::",
    "tests/integration/docs/test_pages.py::test_a_page_runs_alone[",
)
"""Each of these tests is a group, because it takes up to minutes and shares no fixture."""

INTEGRATION = "tests/integration/"

FAST_GROUPS = {
    "engines on vLLM": {"embedding", "encoder", "generation", "llm", "multimodal", "serving", "transcription"},
    "engines on transformers": {"image_generator", "omni", "talker", "text_to_speech"},
    "kubernetes": {"kubernetes", "kubernetes/chart", "launcher"},
}
"""Groups of directories of integration tests: their fast tests share one fork server for engines, the imports of
the test process, or one API server."""

SLOW_FILES = ("tests/integration/serving/",)
"""Directories whose files are groups of the slow tier: each starts its engines."""

HEAVY_MIB = 5000
"""Groups with a larger budget of memory wait for each other while others can run."""


def group_of(nodeid: str, tier: Tier | None) -> str:
    """Returns the group of a test, which runs in one worker.

    The integration tests of a directory are a group, because they share engines. Most other groups are files.
    """
    if nodeid.startswith(SEPARATE):
        return nodeid
    if not nodeid.startswith(INTEGRATION) or (tier == Tier.SLOW and nodeid.startswith(SLOW_FILES)):
        return nodeid.partition("::")[0]
    directory = _directory(nodeid)
    if tier == Tier.FAST:
        for group, directories in FAST_GROUPS.items():
            if directory.removeprefix(INTEGRATION) in directories:
                return group
    return directory


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Runs each group in one worker. The most expensive groups start first, so that none runs alone at the end.

    Groups that need much memory run one after another while there are others.
    """

    def __init__(
        self,
        config: pytest.Config,
        log: Producer,
        tier: Tier | None,
        budgets: Budgets,
        ended: Callable[[str, str], None],
    ) -> None:
        """`ended` is called with the id of the worker and the group after the last test of a group."""
        super().__init__(config, log)
        self._tier = tier
        self._budgets = budgets
        self._ended = ended

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        super().mark_test_complete(node, item_index, duration)
        group = self._split_scope(self.registered_collections[node][item_index])
        if all(self.assigned_work[node][group].values()):
            self._ended(node.gateway.id, group)

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid, self._tier)

    def _assign_work_unit(self, node: WorkerController) -> None:
        candidates = self.workqueue
        if self._is_heavy_running():
            candidates = [group for group in self.workqueue if not self._is_heavy(group)] or self.workqueue
        # Of groups with equal budgets, the files of unit tests take least.
        following = min(
            candidates, key=lambda group: (-self._budgets.of(group).cpu_seconds, group.startswith("tests/unit/"))
        )
        self.workqueue.move_to_end(following, last=False)
        # Random order mixes the files of directories, which share fixtures.
        tests = self.workqueue[following]
        self.workqueue[following] = dict(sorted(tests.items(), key=lambda test: _directory(test[0])))
        super()._assign_work_unit(node)

    def _is_heavy(self, group: str) -> bool:
        return bool(self._budgets.of(group).memory_mib > HEAVY_MIB)

    def _is_heavy_running(self) -> bool:
        return any(
            self._is_heavy(group) and not all(tests.values())
            for groups in self.assigned_work.values()
            for group, tests in groups.items()
        )


def _directory(nodeid: str) -> str:
    return nodeid.partition("::")[0].rpartition("/")[0]
