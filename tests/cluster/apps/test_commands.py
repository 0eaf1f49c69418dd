"""The commands for profiles and plans against an installation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cluster.installation import Installation

APP = """
from cornserve import App
from cornserve_echo.stages import Caption, CaptionRequest, StageTask

path = Caption(llm=StageTask(seconds={"llm": 0.02}, gpus=0))
app = App("profiled", [path], probes=[CaptionRequest()])
"""


@pytest.mark.slow
def test_an_app_is_measured_planned_deployed_and_scaled(
    installed: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CORNSERVE_HOME", str(tmp_path / "home"))
    app, workload = tmp_path / "profiled.py", tmp_path / "workload.json"
    app.write_text(APP)
    types = {"text": {"components": ["llm"], "share": 1.0}}
    workload.write_text(json.dumps({"format": "cornserve-planner/workload", "version": 1, "types": types}))

    def run(*arguments: str) -> str:
        result = installed.cornserve(*arguments)
        assert result.exit_code == 0, result.output
        return result.output

    options = ("--workload", str(workload), "--budget", "30s", "--adapt", "on")
    deployed = run("deploy", str(app), "--gpus", "2", *options)
    assert "measuring 1 of 1 mixes" in deployed
    assert "profiled serves" in deployed
    assert "cells for " in run("scale", "profiled", "--gpus", "1")
    assert "llm with llm: measured" in run("profile", "profiled", "--error", "0.5", "--dry-run")
    assert [item["metadata"]["name"] for item in installed.get("apps")["items"]] == ["profiled"]
    assert installed.get("app", "profiled")["status"]["cells"] == 1
    run("delete", "profiled")
