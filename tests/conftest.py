"""Distributes the tests among pytest-xdist workers, and selects and reports chaos tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from xdist.remote import Producer  # type: ignore[import-untyped]
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]
from xdist.workermanage import WorkerController  # type: ignore[import-untyped]

from tests.chaos.form import FULL, FULL_TIMEOUT_SECONDS, seed
from tests.chaos.report import FaultRecorder, FaultResult, table
from tests.crashed_worker import kill_processes_with

# By default, pytest rewrites the assertions of test modules only.
pytest.register_assert_rewrite("tests.unit.store.conformance", "tests.integration.launcher.conformance")

pytest_plugins = ["tests.kubernetes.api_server", "tests.kubernetes.record_resources"]


CLUSTER_TIMEOUT_SECONDS = 600
"""The time limit of a test on a cluster. Such tests wait for several pods in turn, up to 180 s for each."""


LONGEST = {f"tests/integration/{name}" for name in ("kubernetes", "llm", "multimodal", "serving")}
"""Directories whose tests take minutes in one worker."""

PAGES = "tests/integration/docs/test_pages.py"
"""A file whose tests take up to minutes each, and share nothing."""


class DirectoryScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Runs the integration tests of a directory in one worker, because they share engines, and other tests by file.

    The longest groups come first, and the files of unit tests, which take seconds, last, so that no worker runs a long
    group alone at the end.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        if file == PAGES:
            return nodeid
        return file.rpartition("/")[0] if file.startswith("tests/integration/") else file

    def _assign_work_unit(self, node: WorkerController) -> None:
        following = min(self.workqueue, key=lambda scope: (scope not in LONGEST, scope.startswith("tests/unit/")))
        self.workqueue.move_to_end(following, last=False)
        super()._assign_work_unit(node)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
    return DirectoryScheduling(config, log) if config.getvalue("dist") == "loadscope" else None


def pytest_testnodedown(node: WorkerController, error: object) -> None:
    if error is not None:
        temporary: Path = node.config._tmp_path_factory.getbasetemp()
        kill_processes_with(temporary / f"popen-{node.gateway.id}")


def pytest_report_header() -> str:
    return f"chaos tests: {'full' if FULL else 'short'} form; repeat them with CHAOS_SEED={seed()}"


def pytest_itemcollected(item: pytest.Item) -> None:
    if item.nodeid.startswith("tests/chaos/"):
        item.add_marker("chaos")
    if item.nodeid.startswith("tests/cluster/"):
        item.add_marker("cluster")
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(CLUSTER_TIMEOUT_SECONDS))
    for marker in item.iter_markers("chaos"):
        if marker.kwargs:
            FaultRecorder(item.user_properties)(FaultResult(**marker.kwargs))
    if FULL and item.get_closest_marker("chaos") is not None:
        item.add_marker(pytest.mark.timeout(FULL_TIMEOUT_SECONDS), append=False)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Prints the results of the chaos tests in their full form."""
    reports = [report for outcome in ("passed", "failed") for report in terminalreporter.stats.get(outcome, [])]
    faults = [report for report in reports if report.when == "call" and "chaos" in report.keywords]
    if FULL and faults:
        terminalreporter.section(f"chaos tests, full form, CHAOS_SEED={seed()}")
        terminalreporter.write("".join(f"{line}\n" for line in table(faults)))


@pytest.fixture
def record_fault(request: pytest.FixtureRequest) -> FaultRecorder:
    """Adds a row to the table at the end of `make chaos`."""
    return FaultRecorder(request.node.user_properties)
