"""A pytest plugin that selects tiers and slices of the tests, measures groups of tests, and checks their budgets."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Final

import pytest
from xdist.remote import Producer  # type: ignore[import-untyped]
from xdist.workermanage import WorkerController  # type: ignore[import-untyped]

from tests.costs.budgets import FILE, Tier, load_budgets, set_budgets
from tests.costs.recorder import COLLECTION, CostRecorder, most_expensive
from tests.costs.scheduling import GroupScheduling, group_of
from tests.costs.slices import Slice

SUBREAPER: Final = Path(__file__).with_name("subreaper.py")
_SHOWN: Final = 10


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tiers")
    group.addoption("--tier", choices=[*Tier], help="run only the tests of a tier, and check the budgets of its groups")
    group.addoption("--slice", metavar="K/N", help="of the slow tests, run only the K-th of N slices")
    group.addoption("--set-budgets", action="store_true", help="set the budgets of the groups that run")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects the tests of other tiers and slices, after `-m` and `-k` have been applied."""
    tier, part = config.getoption("tier"), config.getoption("slice")
    slow = {item: group_of(item.nodeid, Tier.SLOW) for item in items if item.get_closest_marker("slow") is not None}
    chosen = (
        Slice.parse(part).groups(slow.values(), load_budgets(Tier.SLOW, config.rootpath / FILE))
        if part
        else set(slow.values())
    )
    selected: list[pytest.Item] = []
    deselected: list[pytest.Item] = []
    for item in items:
        in_tier = tier is None or (item in slow) == (tier == Tier.SLOW)
        in_slice = item not in slow or slow[item] in chosen
        (selected if in_tier and in_slice else deselected).append(item)
    items[:] = selected
    config.hook.pytest_deselected(items=deselected)


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        return
    part, tier = config.getoption("slice"), config.getoption("tier")
    if part:
        try:
            Slice.parse(part)
        except ValueError as error:
            raise pytest.UsageError(f"--slice: {error}") from None
    distributed = config.getoption("dist", "no") != "no"
    if config.getoption("set_budgets") and not (tier and distributed):
        raise pytest.UsageError("--set-budgets needs --tier, --numprocesses and --dist loadscope")
    if distributed:
        python = shlex.join([sys.executable, str(SUBREAPER)])
        config.option.tx = [f"{worker}//python={python}" for worker in config.option.tx]
        if config.getoption("dist") == "loadscope":
            config.pluginmanager.register(GroupCosts(config))


class GroupCosts:
    """Measures the groups of a run, prints the most expensive ones, and fails the run if one exceeds its budget."""

    def __init__(self, config: pytest.Config) -> None:
        """Without a tier, budgets only order the groups."""
        tier = config.getoption("tier")
        self._tier = Tier(tier) if tier else None
        self._sliced = config.getoption("slice") is not None
        self._sets_budgets = config.getoption("set_budgets")
        self._file = config.rootpath / FILE
        self._budgets = load_budgets(self._tier or Tier.FAST, self._file)
        self._recorder = CostRecorder()

    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Producer) -> GroupScheduling:
        return GroupScheduling(config, log, self._tier, self._budgets, self._recorder.end)

    def pytest_testnodeready(self, node: WorkerController) -> None:
        # execnet has no public name for the process, which is the subreaper.
        self._recorder.start(node.gateway.id, node.gateway._io.popen.pid)

    def pytest_xdist_node_collection_finished(self, node: WorkerController) -> None:
        self._recorder.end(node.gateway.id, COLLECTION)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self._recorder.stop()
        if self._sliced and session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
            session.exitstatus = pytest.ExitCode.OK  # There are fewer groups than slices.
        if self._tier and self._sets_budgets:
            set_budgets(self._tier, self._recorder.costs, self._file)
        elif self._excesses() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("most expensive groups of tests")
        terminalreporter.line(f"{'CPU s':>6}{'budget':>8}{'MiB':>8}{'budget':>8}  group")
        for group, cost in most_expensive(self._recorder.costs, _SHOWN):
            budget = self._budgets.of(group)
            terminalreporter.line(
                f"{cost.cpu_seconds:6}{budget.cpu_seconds:8}{cost.memory_mib:8}{budget.memory_mib:8}  {group}"
            )
        for group, excess in self._excesses().items():
            terminalreporter.line(f"FAILED {group} exceeds its budget in {FILE}: {excess}", red=True)

    def _excesses(self) -> dict[str, str]:
        if self._tier is None or self._sets_budgets:
            return {}
        costs = self._recorder.costs.items()
        return {group: excess for group, cost in costs if (excess := cost.excess(self._budgets.of(group)))}
