"""A step model is fitted to the latency curve of a profile."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from cornserve_planner.__main__ import app
from cornserve_planner.profiles.profile import StepSeconds
from cornserve_planner.simulation.step_model import EngineLimits, StepModel
from tests.unit.planner.simulation.conftest import profile_text
from tests.unit.planner.simulation.step_by_step import StepByStepEngine, SteppedRequest

PROMPT, OUTPUT = 200, 50
BATCHES = (1, 4, 16)


def measured(model: StepModel, batch: int) -> float:
    """Returns the seconds of requests with `batch` of them in flight."""
    engine = StepByStepEngine(model, EngineLimits(256, 8192, 10_000))
    requests = [SteppedRequest(number, 0.0, PROMPT, OUTPUT) for number in range(batch)]
    engine.run(requests)
    return max(request.end or 0.0 for request in requests)


def fit(folder: Path, seconds: list[float], *changes: str) -> Result:
    curve = (
        f", latency: [{{batch: {list(BATCHES[: len(seconds)])}, seconds: {seconds}, tag: measured, source: a test}}]"
    )
    (folder / "profile.yaml").write_text(profile_text(latency=curve).replace("rate: {value: 4.0", "rate: {value: 0.1"))
    arguments = ["--option", "E", "--prompt", str(PROMPT), "--output", str(OUTPUT), "--cache-tokens", "9000", *changes]
    return CliRunner().invoke(app, ["fit-steps", str(folder / "profile.yaml"), *arguments])


def test_the_steps_of_a_measured_engine_are_found(tmp_path: Path) -> None:
    model = StepModel(fixed=0.02, per_token=1e-4)

    result = fit(tmp_path, [measured(model, batch) for batch in BATCHES])

    step = StepSeconds.model_validate(yaml.safe_load(result.stdout)["step"])
    assert step.fixed == pytest.approx(0.02)
    assert step.per_token == pytest.approx(1e-4)
    assert (step.cache_tokens, step.tag) == (9000, "predicted")


def test_time_of_sequences_counts_as_time_of_tokens_and_predicts_other_batches(tmp_path: Path) -> None:
    model = StepModel(fixed=0.02, per_token=1e-4, per_sequence=2e-4)

    result = fit(tmp_path, [measured(model, batch) for batch in BATCHES])

    step = StepSeconds.model_validate(yaml.safe_load(result.stdout)["step"])
    fitted = StepModel(step.fixed, per_token=step.per_token)
    assert step.per_token > 1e-4
    assert measured(fitted, 10) == pytest.approx(measured(model, 10), rel=0.01)


@pytest.mark.parametrize(
    ("seconds", "changes", "message"),
    [
        ([1.0], [], "options.E.latency: has one batch size: measure at least two"),
        ([1.0, 4.0, 16.0], [], "options.E.latency: grows as fast as the batch"),
        ([1.0, 2.0], ["--option", "L"], "options.L.latency: has no curve of complete requests: measure it"),
        ([1.0, 2.0], ["--option", "X"], "--option: 'X' is not in the profile: use one of E, L, V"),
        ([1.0, 2.0], ["--cache-tokens", "1"], "cache_tokens: are 1, less than a block of 16"),
        ([1.0, 2.0], ["--prompt", "0"], "--prompt: must be a finite number greater than 0, not 0"),
    ],
)
def test_curves_that_do_not_determine_a_step_model_are_refused_in_one_line(
    tmp_path: Path, seconds: list[float], changes: list[str], message: str
) -> None:
    result = fit(tmp_path, seconds, *changes)

    assert result.exit_code == 1
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
