from __future__ import annotations

from pathlib import Path

import pytest

from cornserve_planner.planning.model_plan import make_plan
from cornserve_planner.planning.request import PlanRequest

MODEL = """
format: cornserve-planner/model
version: 1
name: tiny
components: {encoder: {}, llm: {after: [encoder]}, vocoder: {after: [llm]}}
modalities: {always: [llm], inputs: {image: [encoder]}, outputs: {audio: [vocoder]}}
options:
  E: {components: [encoder], gpu: A100-80GB}
  L: {components: [llm], gpu: A100-80GB}
  V: {components: [vocoder], gpu: A100-80GB}
paths: [[E, L, V]]
"""

WORKLOAD = """
format: cornserve-planner/workload
version: 1
types:
  speech:
    components: [encoder, llm, vocoder]
    share: 0.5
    sizes: {text_tokens: 100, image_tokens: 400, output_tokens: 20}
  text: {components: [llm], share: 0.5, sizes: {text_tokens: 100, output_tokens: 20}}
"""

OPTION = (
    "- {{option: {}, gpu: A100-80GB, "
    "throughput: [{{rate: {{value: {}, unit: requests/s, tag: measured, source: a test}}}}]{}}}"
)

STEP = (
    ", step: {fixed: 0.01, per_token: 0.0001, max_num_seqs: 8, max_num_batched_tokens: 250, cache_tokens: 16000,"
    " tag: measured, source: a test}"
)


def profile_text(step: str = "", latency: str = "") -> str:
    """Returns a profile with 4, 2 and 8 requests per second for E, L and V."""
    options = "\n".join(
        OPTION.format(name, rate, more) for name, rate, more in (("E", 4.0, latency), ("L", 2.0, step), ("V", 8.0, ""))
    )
    return f"format: cornserve-planner/profile\nversion: 1\nmodel: tiny\noptions:\n{options}\n"


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the plan `plan.json` of a model with three stages, and what it was made from.

    For a request, E takes 0.25 s, L 0.5 s, and V 0.125 s.
    """
    folder = tmp_path_factory.mktemp("inputs")
    for name, text in (
        ("model.yaml", MODEL),
        ("workload.yaml", WORKLOAD),
        ("profile.yaml", profile_text()),
        ("steps.yaml", profile_text(step=STEP)),
    ):
        (folder / name).write_text(text)
    request = PlanRequest(
        str(folder / "model.yaml"),
        rate=8.0,
        largest_cell=8,
        workload=folder / "workload.yaml",
        profile=folder / "profile.yaml",
    )
    make_plan(request).file.write(folder / "plan.json")
    return folder
