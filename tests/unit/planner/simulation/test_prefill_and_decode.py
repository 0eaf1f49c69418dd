"""Prefill and decode run in different replicas of a simulation."""

from __future__ import annotations

from pathlib import Path

import pytest

from cornserve_planner.planning.model_plan import make_plan
from cornserve_planner.planning.request import PlanRequest
from cornserve_planner.simulation.serving_settings import ServingSettings
from cornserve_planner.simulation.simulated_request import SimulatedRequest
from tests.unit.planner.simulation.conftest import OPTION, STEP
from tests.unit.planner.simulation.test_serving import Simulated

MODEL = """
format: cornserve-planner/model
version: 1
name: apart
components: {prefill: {}, decode: {after: [prefill]}}
options:
  P: {components: [prefill], gpu: A100-80GB}
  D: {components: [decode], gpu: A100-80GB}
paths: [[P, D]]
"""

WORKLOAD = """
format: cornserve-planner/workload
version: 1
types: {text: {components: [prefill, decode], share: 1}}
"""


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("apart")
    options = "\n".join(OPTION.format(name, 4.0, STEP) for name in "PD")
    profile = f"format: cornserve-planner/profile\nversion: 1\nmodel: apart\noptions:\n{options}\n"
    files = {name: folder / f"{name}.yaml" for name in ("model", "workload", "steps")}
    for file, text in zip(files.values(), (MODEL, WORKLOAD, profile), strict=True):
        file.write_text(text)
    request = PlanRequest(str(files["model"]), gpus=2, workload=files["workload"], profile=files["steps"])
    make_plan(request).file.write(folder / "plan.json")
    return folder


def test_prefill_returns_the_first_token_and_decode_the_others_after_the_transfer(apart: Path) -> None:
    """A step takes 0.01 s, and 0.0001 s for each token that it computes."""
    settings = ServingSettings(bandwidth=1000.0, transfers={"P": 500.0})

    found = Simulated(apart, [SimulatedRequest("a", 0.0, "text", 200, 0, 30)], profile="steps.yaml", settings=settings)

    first = 0.01 + 0.0001 * 200
    assert found.firsts == {"a": pytest.approx(first)}
    assert found.ends == {"a": pytest.approx(first + 500.0 / 1000.0 + 29 * (0.01 + 0.0001))}


def test_decode_is_not_delayed_by_other_prompts(apart: Path) -> None:
    alone = SimulatedRequest("a", 0.0, "text", 10, 0, 100)
    prompts = [SimulatedRequest(str(number), 0.2, "text", 2000, 0, 1) for number in range(5)]

    ends = [Simulated(apart, [alone, *others], profile="steps.yaml").ends["a"] for others in ([], prompts)]

    assert ends[1] == pytest.approx(ends[0], abs=5 * 0.0101)
