"""Plans deployed with the command line, under traffic."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from cornserve.client import ApiStatusError, Client
from cornserve.home import Home
from cornserve_planner.plan_file.document import PlanFile
from tests.integration.cli.cli_instance import SMALL_SLAB, CliInstance

pytestmark = pytest.mark.slow

APP = """
from cornserve_echo.stages import caption_app

app = caption_app("captions", encoder=0.01, llm=0.02)
"""

PROFILE = {
    "format": "cornserve-planner/profile",
    "version": 1,
    "model": "captions",
    "options": [
        {
            "option": option,
            "gpu": "L4",
            "throughput": [{"rate": {"value": rate, "unit": "requests/s", "tag": "measured", "source": "set times"}}],
        }
        for option, rate in (("encoder", 100), ("llm", 50), ("encoder+llm", 30))
    ],
}

OPTIONS = {
    "format": "cornserve-planner/options",
    "version": 1,
    "options": {name: {"gpu": "L4"} for name in ("encoder", "llm", "encoder+llm")},
}

WORKLOAD = {
    "format": "cornserve-planner/workload",
    "version": 1,
    "types": {
        "encoder+llm": {"components": ["encoder", "llm"], "share": 0.7},
        "llm": {"components": ["llm"], "share": 0.3},
    },
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with an app and a plan of it with cells of 1 and 4 slots, of which one each runs."""
    directory = tmp_path_factory.mktemp("plans")
    (directory / "captions.py").write_text(APP)
    for name, document in (("profile", PROFILE), ("options", OPTIONS), ("workload", WORKLOAD)):
        (directory / f"{name}.json").write_text(json.dumps(document))
    inputs = [f"--{name}={directory}/{name}.json" for name in ("profile", "workload")]
    planning = CliInstance(Home(directory / "home"))
    save = f"--save={directory}/plan.json"
    model = planning.do("plan", "from", f"{directory}/captions.py", f"--options={directory}/options.json")
    (directory / "model.yaml").write_text(model)
    planning.do("plan", f"{directory}/model.yaml", *inputs, "--gpus=5", "--largest-cell=4", save)
    return directory


def replicas(app: Any) -> dict[str, set[str]]:
    """Returns the ids of the running replicas by cell."""
    cells: dict[str, set[str]] = {}
    for group in app["status"]["groups"]:
        ids = {replica["id"] for replica in group["replicas"] if replica["state"] == "ready"}
        cells.setdefault(group["cell"], set()).update(ids)
    return cells


def assert_is_deployed(instance: CliInstance, file: PlanFile) -> None:
    plan = instance.json("status", "captions")["spec"]["plan"]
    shown = instance.do("status", "captions")

    running = {cell["gpus"]: cell["count"] for cell in plan["cells"] if cell["count"]}
    assert running == file.counts
    assert [each["sha256"] for each in plan["inputs"]] == [each.sha256 for each in file.inputs]
    assert f"plan  {file.rate:.4g} requests/s, 5 GPUs or slots" in shown
    assert "cell 4-0" in shown


def test_changed_plans_start_and_stop_the_difference_without_a_failed_request(
    instance: CliInstance, files: Path
) -> None:
    instance.do("up", "--detach", "--port", "0", "--slots", "L4=8", *SMALL_SLAB)
    instance.do("deploy", f"{files}/captions.py", "--plan", f"{files}/plan.json")
    assert_is_deployed(instance, PlanFile.read(files / "plan.json"))
    stop = Event()

    def send(images: int) -> Counter[str]:
        responses: Counter[str] = Counter()
        with Client(instance.url, retries=0) as client:
            while not stop.is_set():
                responses[client.invoke("captions", {"text": str(images), "images": images})["text"]] += 1
        return responses

    with ThreadPoolExecutor() as pool:
        sent = [pool.submit(send, images) for images in (0, 1, 0, 1)]
        try:
            states = [replicas(instance.json("status", "captions"))]
            for gpus in ("6", "8", "4"):
                instance.do("scale", "captions", "--gpus", gpus)
                states.append(replicas(instance.json("status", "captions")))
        finally:
            stop.set()
        responses = [future.result() for future in sent]  # Raises the error of a failed request.

    assert [list(counts) for counts in responses] == [["0"], ["1"], ["0"], ["1"]]
    assert [state.keys() for state in states] == [
        {"1-0", "4-0"},
        {"1-0", "1-1", "4-0"},
        {"4-0", "4-1"},
        {"4-0"},
    ]
    kept = states[0]["4-0"]
    assert len(kept) == 4
    assert all(state["4-0"] == kept for state in states)
    assert states[0]["1-0"] == states[1]["1-0"]


def test_plans_that_cannot_run_are_refused_by_name(instance: CliInstance, files: Path) -> None:
    instance.do("up", "--detach", "--port", "0", "--slots", "L4=2", *SMALL_SLAB)
    app, plan = f"{files}/captions.py", f"{files}/plan.json"
    old = json.loads((files / "plan.json").read_text()) | {"version": 1}
    (files / "old.json").write_text(json.dumps(old))
    (files / "slower.py").write_text(APP.replace("llm=0.02", "llm=0.03"))

    outdated = instance.run("deploy", app, "--plan", f"{files}/old.json")
    both = instance.run("deploy", app, "--plan", plan, "--replicas", "2")
    large = instance.run("deploy", app, "--plan", plan)

    assert "version 1 is not read any more" in outdated.stderr
    assert "replicas: a plan has the replicas of the executors: remove the replicas or the plan" in both.stderr
    assert "the plan needs 5 CPU slots, but the instance has 2: plan for at most 2 CPU slots" in large.stderr
    assert {outdated.returncode, both.returncode, large.returncode} == {1}
    with (
        Client(instance.url) as client,
        pytest.raises(ApiStatusError, match="settings that no executor of the app has"),
    ):
        client.deploy(f"{files}/slower.py", plan=plan)
    assert not instance.processes("cornserve_executors.base")
