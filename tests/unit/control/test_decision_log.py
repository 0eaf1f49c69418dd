"""The controller's decision log, which the simulator repeats."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cornserve.control.planning.job import PlanningResult
from cornserve.control.store.base import Store
from cornserve.observe.decision_file import DECISIONS, DecisionFile
from cornserve_planner.simulation.decision_replay import DecisionReplay
from tests.unit.control.adapting_app import adapting, mixture
from tests.unit.control.test_autoscaling import AutoscalingApp
from tests.unit.control.test_replanning import SHIFTED, plan_for, planned_app


@pytest.fixture
def log(tmp_path: Path) -> Iterator[DecisionFile]:
    file = DecisionFile(tmp_path / "decisions", "controller")
    DECISIONS.addHandler(file)
    yield file
    DECISIONS.removeHandler(file)
    file.close()


async def test_decisions_about_cells_are_repeated_equally(store: Store, log: DecisionFile) -> None:
    app = await adapting(store, mixture(1, 1))
    await app.run(22, 120)
    await app.run(60, 120)

    result = DecisionReplay().run(log.path)

    assert result.process == "controller"
    assert result.decisions["cells"] >= 40
    assert not result.different
    changes = [line for line in log.path.read_text().splitlines() if '"cells"' in line and '"counts":null' not in line]
    assert changes
    assert "and the running cells serve" in changes[0]


async def test_decisions_about_other_plans_are_repeated_equally(store: Store, log: DecisionFile) -> None:
    app = await planned_app(store)
    app.replanning.results = [PlanningResult(plan=plan_for(text=0.75), running_rate=20.0)]
    await app.run(16, 120)
    await app.run(16, 120, SHIFTED)
    assert await app.plan() == plan_for(text=0.75)

    result = DecisionReplay().run(log.path)

    assert result.decisions["mix"] >= 1
    assert result.decisions["plan"] == 1
    assert not result.different
    (line,) = (line for line in log.path.read_text().splitlines() if '"event":"plan"' in line)
    assert '"better":true' in line


async def test_decisions_about_replicas_are_repeated_equally(store: Store, log: DecisionFile) -> None:
    app = AutoscalingApp(store)
    await app.deploy()
    await app.run(300, tokens={"llm-1": 900}, images=10)
    await app.run(120, tokens={"llm-1": 100, "llm-2": 2500}, images=50)
    assert await app.replicas() == (3, 3)

    result = DecisionReplay().run(log.path)

    assert result.decisions["replicas"] >= 160
    assert not result.different
