"""`cornserve deploy --gpus` and `--rate` make a plan, and refuse options that contradict each other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cornserve.app.record import AppSpec
from cornserve.cli.commands import app
from tests.unit.http_server import json_response, serving

FILES = ["--workload", "workload.yaml", "--profile", "profile.yaml"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--gpus", "4"], "--workload: is missing: give the file that lists requests or their types"),
        (["--gpus", "4", "--budget", "5m", *FILES], "--budget: has no effect with --profile"),
        (["--budget", "5m"], "--budget: needs --gpus or --rate, for which a plan is made"),
        (FILES, "--workload, --profile: needs --gpus or --rate, for which a plan is made"),
        (["--gpus", "4", "--plan", "plan.json", *FILES], "--plan: is a plan already: remove --gpus, --rate"),
    ],
)
def test_contradicting_options_are_refused(options: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["deploy", "app.py", *options])

    assert result.exit_code == 1
    assert message in " ".join(result.stderr.split())


SOURCE = """
from cornserve_echo.stages import caption_app

app = caption_app("caption", encoder=0.1, llm=0.05)
"""

MEASURED_WITH = {"versions": {"cornserve": "1"}, "hardware": "cpu", "driver": "6", "date": "2026-11-23"}

RATES = {"encoder": 10, "llm": 20, "encoder+llm": 2}

WORKLOAD = {
    "format": "cornserve-planner/workload",
    "version": 1,
    "types": {
        "text": {"components": ["llm"], "share": 0.9},
        "images": {"components": ["encoder", "llm"], "share": 0.1, "sizes": {"images": 1}},
    },
}


def profile() -> dict[str, object]:
    rates = {
        name: {"value": rate, "unit": "requests/s", "tag": "measured", "source": "a"} for name, rate in RATES.items()
    }
    latency = {"batch": [1], "seconds": [0.1], "tag": "measured", "source": "a"}
    options = [
        {"option": name, "gpu": "cpu", "throughput": [{"rate": rate}], "measured_with": MEASURED_WITH}
        for name, rate in rates.items()
    ]
    unused = {**options[0], "gpus": 4}
    options[0] = {**options[0], "latency": [latency]}
    return {"format": "cornserve-planner/profile", "version": 1, "model": "caption", "options": [*options, unused]}


def test_a_deployment_stores_the_inputs_of_its_plan(tmp_path: Path) -> None:
    files = {"caption.py": SOURCE, "workload.json": json.dumps(WORKLOAD), "profile.json": json.dumps(profile())}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    options = ["--gpus", "4", *(f"--{name}={tmp_path}/{name}.json" for name in ("workload", "profile"))]

    with serving() as server:
        server.on("PUT /admin/v1/apps/caption", json_response({"error": {"message": "stored"}}, 400))
        CliRunner().invoke(app, ["deploy", str(tmp_path / "caption.py"), *options, "--url", server.url])
        [(_, document)] = [request for request in server.requests if request[0].startswith("PUT")]

    spec = AppSpec.model_validate(document)
    assert spec.plan is not None
    assert spec.planning is not None
    assert spec.plan.counts == {4: 1}
    assert (spec.planning.gpus, spec.planning.rate) == (4, None)
    assert {name: kind.share for name, kind in spec.planning.workload.items()} == {"text": 0.9, "images": 0.1}
    assert spec.planning.workload["images"].sizes == {"images": 1}
    entries = spec.planning.profile["options"]
    assert isinstance(entries, list)
    assert len(entries) == len(RATES)
    for entry in entries:
        assert isinstance(entry, dict)
        assert entry["measured_with"] == MEASURED_WITH
        assert "latency" not in entry
    assert spec.code == spec.model_copy(update={"planning": None}).code
