"""`cornserve deploy --gpus` and `--rate` refuse options that contradict each other, before anything is read."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from cornserve.cli.commands import app

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
