"""Costs that depend on the sizes of requests: synthetic components with known seconds per image and per token."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from cornserve_planner.conversion.size_costs import non_negative_least_squares
from cornserve_planner.conversion.size_spread import size_spreads
from cornserve_planner.errors import InvalidInputError
from cornserve_planner.inputs.planning_inputs import PlanInputs, load_inputs
from cornserve_planner.planning.model_plan import make_plan
from cornserve_planner.planning.request import PlanRequest
from cornserve_planner.planning.result import PlanResult
from cornserve_planner.report.plan_report import report
from tests.unit.planner.examples import examples

MODEL = """
format: cornserve-planner/model
version: 1
name: tiny
components: {encoder: {}, llm: {after: [encoder]}}
options:
  E: {components: [encoder], gpu: L4}
  L: {components: [llm], gpu: L4}
  EL: {components: [encoder, llm], gpu: L4}
paths: [[EL], [E, L]]
modalities: {always: [llm], inputs: {image: [encoder]}}
"""
FIXED, PER_IMAGE, LLM, FACTOR = 0.1, 0.3, 0.5, 1.2


def encoder(images: float) -> float:
    return FIXED + PER_IMAGE * images


def measured(seconds: float, sizes: str = "", error: float = 0.001) -> str:
    rate = f"{{value: {1 / seconds}, unit: requests/s, tag: measured, source: a test}}"
    return f"{{rate: {rate}, error: {error}{f', sizes: {{{sizes}}}' if sizes else ''}}}"


def profile(encoders: list[str], llm: str, both: str) -> str:
    options = "".join(
        f"  - {{option: {name}, gpu: L4, throughput: [{', '.join(found)}]}}\n"
        for name, found in (("E", encoders), ("L", [llm]), ("EL", [both]))
    )
    return f"format: cornserve-planner/profile\nversion: 1\nmodel: tiny\noptions:\n{options}"


EXACT = profile(
    [measured(encoder(images), f"images: {images}") for images in (1, 4, 16)],
    measured(LLM),
    measured(FACTOR * (encoder(2) + LLM), "images: 2"),
)
REQUESTS = [1, 1, 1, 24, 0, 3]
"""Images of each request."""


def files(folder: Path, text: str = EXACT, workload: str | None = None) -> tuple[str, Path, Path]:
    (folder / "model.yaml").write_text(MODEL)
    (folder / "profile.yaml").write_text(text)
    requests = folder / "requests.csv"
    lines = [f"{index},7,{';'.join(['640x480'] * images)}" for index, images in enumerate(REQUESTS)]
    header = "# format: cornserve-planner/requests, version: 1\narrival,text_tokens,images\n"
    requests.write_text(header + "\n".join(lines) + "\n")
    if workload is not None:
        requests = folder / "workload.yaml"
        requests.write_text(f"format: cornserve-planner/workload\nversion: 1\n{workload}\n")
    return str(folder / "model.yaml"), requests, folder / "profile.yaml"


def seconds(inputs: PlanInputs, kind: str, path: str) -> dict[str, float]:
    return dict(next(found.seconds for found in inputs.problem.paths if (found.type, found.name) == (kind, path)))


def test_the_seconds_of_a_type_are_the_mean_over_its_requests(tmp_path: Path) -> None:
    inputs = load_inputs(*files(tmp_path))

    mean = np.mean([encoder(images) for images in REQUESTS if images])
    assert seconds(inputs, "llm+encoder", "E → L") == pytest.approx({"E": mean, "L": LLM}, rel=0.01)
    assert seconds(inputs, "llm+encoder", "EL") == pytest.approx({"EL": FACTOR * (mean + LLM)}, rel=0.02)
    assert seconds(inputs, "llm", "EL") == pytest.approx({"EL": FACTOR * LLM}, rel=0.02)


def test_a_workload_of_types_states_mean_sizes(tmp_path: Path) -> None:
    types = [
        f"{name}: {{components: [encoder, llm], share: 0.5, sizes: {{images: {images}}}}}"
        for name, images in (("one", 1), ("many", 24))
    ]
    inputs = load_inputs(*files(tmp_path, workload=f"types: {{{', '.join(types)}}}"))

    assert seconds(inputs, "one", "E → L")["E"] == pytest.approx(encoder(1), rel=0.01)
    assert seconds(inputs, "many", "E → L")["E"] == pytest.approx(encoder(24), rel=0.01)


def test_the_spread_within_a_type_is_reported(tmp_path: Path) -> None:
    model, workload, times = files(tmp_path)
    result = make_plan(PlanRequest(model, gpus=4, workload=workload, profile=times))

    true = np.array([encoder(images) for images in REQUESTS if images])
    (spread,) = size_spreads(result.inputs.workload, result.inputs.conversion)
    assert (spread.type, spread.component) == ("llm+encoder", "encoder")
    assert spread.variation == pytest.approx(true.std() / true.mean(), rel=0.01)
    assert spread.largest == pytest.approx(true.max() / true.mean(), rel=0.01)
    assert f"within type llm+encoder, the seconds of encoder vary by {spread.variation:.0%}" in printed(result)


def test_a_profile_without_sizes_is_reported(tmp_path: Path) -> None:
    constant = profile([measured(0.5)], measured(LLM), measured(1.2))
    model, workload, times = files(tmp_path, constant)
    result = make_plan(PlanRequest(model, gpus=4, workload=workload, profile=times))

    assert seconds(result.inputs, "llm+encoder", "E → L")["E"] == pytest.approx(0.5)
    assert "Request sizes are not modeled" in printed(result)


def printed(result: PlanResult) -> str:
    console = Console(file=StringIO(), width=300)
    console.print(report(result))
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


NO_SIZES = "types: {image: {components: [encoder, llm], share: 1.0}}"
TWICE = "images: 1, text_tokens: 10", "images: 2, text_tokens: 20", "images: 3, text_tokens: 30"


@pytest.mark.parametrize(
    ("text", "workload", "error"),
    [
        (EXACT, NO_SIZES, r"types\.image: the profile's seconds of encoder depend on images, which is not stated"),
        (
            profile([measured(encoder(n), f"images: {n}") for n in (1, 4)], measured(LLM), measured(1.0)),
            None,
            "measurements of EL: the profile's seconds of encoder depend on images, which is not stated",
        ),
        (
            profile([measured(0.4, "images: 1"), measured(0.7)], measured(LLM), measured(1.0)),
            None,
            "measurements of E: images is stated for some mixes only: state it for all mixes",
        ),
        (
            profile([measured(n, sizes) for n, sizes in enumerate(TWICE, 1)], measured(LLM), measured(1.0)),
            None,
            "measurements of E: 3 measurements do not separate the seconds per images, text_tokens: measure at more",
        ),
        (
            profile(
                [measured(n, f"image_tokens: {n}") for n in (1, 2)], measured(LLM), measured(1.0, "image_tokens: 1")
            ),
            None,
            r"types\.llm\+encoder: the profile's seconds of encoder depend on image_tokens, which is not stated",
        ),
        (EXACT.replace("images: 4", "pixels: 4"), None, r"pixels"),
        (EXACT.replace("images: 4", "images: -4"), None, r"must be greater than or equal to 0, not -4"),
    ],
)
def test_sizes_that_are_missing_or_do_not_suffice_are_refused(
    text: str, workload: str | None, error: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidInputError, match=error):
        load_inputs(*files(tmp_path, text, workload))


@examples(30, 100)
def test_intervals_contain_the_true_mean_seconds(tmp_path: Path, examples: int) -> None:
    contained = []
    for seed in range(examples):
        rng = np.random.default_rng(seed)
        parts = np.array(rng.uniform((0.2, 0, 0), 1))
        sizes = [(images, 100 * tokens) for images in (1, 4, 16) for tokens in (1, 10)]
        true = [parts @ (1, images, tokens / 100) for images, tokens in sizes]
        noisy = [
            measured(float(each * np.exp(rng.normal(0, 0.05))), f"images: {images}, text_tokens: {tokens}", error=0.05)
            for each, (images, tokens) in zip(true, sizes, strict=True)
        ]
        both = measured(1.0, "images: 1, text_tokens: 7")
        inputs = load_inputs(*files(tmp_path, profile(noisy, measured(LLM), both)))
        times = inputs.conversion.times(inputs.graph, inputs.workload.shares)
        found = times["E", "E → L", "llm+encoder"]
        mean = np.mean([images for images in REQUESTS if images])
        contained.append(found.low <= parts @ (1, mean, 0.07) <= found.high)

    assert np.mean(contained) >= 0.9


@pytest.mark.parametrize("seed", range(20))
def test_non_negative_least_squares_satisfies_the_optimality_conditions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    matrix, right = rng.uniform(0, 1, (8, 4)), rng.normal(0, 1, (8, 5))

    found = non_negative_least_squares(matrix, right)

    slope = matrix.T @ (matrix @ found - right)
    assert (found >= 0).all()
    assert (slope > -1e-9).all()
    assert np.abs(slope[found > 0]).max(initial=0) < 1e-9
