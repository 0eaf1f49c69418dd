"""An app whose mix of requests shifts gets another plan, with real processes and the real planner."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cornserve.app.record import AppView
from cornserve.client import AsyncClient
from tests.integration.cli.caption_traffic import Traffic
from tests.integration.cli.cli_instance import CliInstance
from tests.waiting import until

pytestmark = pytest.mark.slow

SOURCE = """
from cornserve_echo.stages import caption_app

app = caption_app("caption", encoder=0.002, llm=0.002)
"""

RATES = {"encoder": 10, "llm": 20, "encoder+llm": 2}
"""Requests per second of a replica, for the planner. The executors are faster, so that only planned rates matter."""

TEXT, IMAGE = {"text": "a"}, {"text": "b", "images": 1}


def write_files(directory: Path) -> None:
    rates = {
        name: {"value": rate, "unit": "requests/s", "tag": "measured", "source": "a"} for name, rate in RATES.items()
    }
    options = [{"option": name, "gpu": "cpu", "throughput": [{"rate": rate}]} for name, rate in rates.items()]
    types = {
        "text": {"components": ["llm"], "share": 0.9},
        "images": {"components": ["encoder", "llm"], "share": 0.1},
    }
    files: dict[str, dict[str, Any]] = {
        "workload": {"types": types},
        "profile": {"model": "caption", "options": options},
    }
    for kind, fields in files.items():
        document = {"format": f"cornserve-planner/{kind}", "version": 1, **fields}
        (directory / f"{kind}.json").write_text(json.dumps(document))
    (directory / "caption.py").write_text(SOURCE)


def replicas(view: AppView) -> dict[str, set[str]]:
    """Returns the ready replicas of each option."""
    return {group.option: {each.id for each in group.replicas} for group in view.status.groups}


async def test_a_shifted_mix_is_planned_again_and_no_request_fails(instance: CliInstance, tmp_path: Path) -> None:
    write_files(tmp_path)
    instance.up(cpu_slots=6)
    settings = {"window_seconds": 0.5, "dwell_seconds": 1, "shrink_seconds": 3, "min_rate": 100}
    options = ["--gpus", "4", *(f"--{name}={tmp_path}/{name}.json" for name in ("workload", "profile"))]
    options += [part for name, value in settings.items() for part in ("--adapt", f"{name}={value}")]
    deployed = instance.run("deploy", str(tmp_path / "caption.py"), *options)
    assert deployed.returncode == 0, deployed.stderr

    traffic = Traffic(15, [IMAGE, *[TEXT] * 9])
    async with AsyncClient(instance.url) as client, traffic.running(instance.url):
        await traffic.wait(45)
        before = await client.app("caption")
        assert before.generation == 1
        assert {name: len(ids) for name, ids in replicas(before).items()} == {"encoder": 1, "llm": 3}

        traffic.requests = [TEXT, *[IMAGE] * 9]
        views: list[AppView] = []

        async def is_planned_again() -> bool:
            views.append(await client.app("caption"))
            running = {name: len(ids) for name, ids in replicas(views[-1]).items()}
            return running == {"encoder": 2, "llm": 1, "encoder+llm": 1} and views[-1].is_scaled

        await until(is_planned_again)
        await traffic.wait(15)

    assert traffic.responses.keys() == {"ok"}
    after = replicas(views[-1])
    assert views[-1].generation == 2
    assert replicas(before)["encoder"] < after["encoder"]
    assert after["llm"] < replicas(before)["llm"]
    assert views[-1].spec.planning == before.spec.planning
    assert views[-1].spec.plan is not None
    assert views[-1].spec.plan.types["images"].share > 0.8
