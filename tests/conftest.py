"""Selects and reports chaos tests, and loads the plugins of the tests."""

from __future__ import annotations

import gc
import inspect
import os
import sys
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.chaos.form import FULL, FULL_TIMEOUT_SECONDS, seed
from tests.chaos.report import FaultRecorder, FaultResult, table
from tests.loop_clock import LoopClock

# By default, pytest rewrites the assertions of test modules only.
pytest.register_assert_rewrite("tests.unit.store.conformance", "tests.integration.launcher.conformance")

pytest_plugins = ["tests.costs.plugin", "tests.kubernetes.api_server"]


# Several processes with engines share few cores. Threads of OpenMP spin while they wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# The duration of an example depends on what else the machine does.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

ENGINES = {"diffusers", "torch", "transformers", "vllm"}

CLUSTER_TIMEOUT_SECONDS = 600
"""The time limit of a test on a cluster. Such tests wait for several pods in turn, up to 180 s for each."""


class FailureNames:
    """Prints the name of a failed test at once. The summary is missing from a run that is stopped."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and reporter is not None:
            reporter.write_line(f"\nFAILED {report.nodeid} ({report.when})", red=True)


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(FailureNames(config))


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
    _require_coroutine_function(item)
    if FULL and item.get_closest_marker("chaos") is not None:
        item.add_marker(pytest.mark.timeout(FULL_TIMEOUT_SECONDS), append=False)


def _require_coroutine_function(item: pytest.Item) -> None:
    """Refuses `def` under the mark `asyncio` at collection. pytest-asyncio fails such a test only if it runs."""
    function = getattr(item, "function", None)
    function = getattr(getattr(function, "hypothesis", None), "inner_test", function)
    if item.get_closest_marker("asyncio") is not None and not inspect.iscoroutinefunction(function):
        raise pytest.UsageError(f"{item.nodeid} has the mark asyncio: define it by `async def`")


def pytest_collection_finish() -> None:
    """Refuses test modules that import engines, which each worker would load: tests and fixtures import them.

    Excludes the tests and all loaded modules from garbage collection, which would examine them again and again.
    """
    if loaded := ENGINES & sys.modules.keys():
        raise pytest.UsageError(f"a test module imports {', '.join(sorted(loaded))}: import it in tests or fixtures")
    gc.collect()
    gc.freeze()


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


@pytest.fixture
def clock() -> LoopClock:
    """Advances the time of the test's event loop."""
    return LoopClock()
