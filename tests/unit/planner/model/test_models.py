"""The shipped models serve every request type that their modalities allow."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.inputs.planning_inputs import load_inputs
from cornserve_planner.model.document import ModelDocument
from cornserve_planner.model.shipped import shipped_model, shipped_models

PROFILES = Path(__file__).parents[4] / "docs/reference/profiles.md"


@pytest.mark.parametrize("name", shipped_models())
def test_every_mix_of_modalities_has_a_path(name: str) -> None:
    model = shipped_model(name)
    graph, modalities = model.graph(), model.modalities
    assert modalities is not None

    groups = [*modalities.inputs.values(), *modalities.outputs.values()]
    for chosen in product((False, True), repeat=len(groups)):
        needed = frozenset(modalities.always).union(*(g for g, c in zip(groups, chosen, strict=True) if c))
        request_type = modalities.request_type(needed)
        assert graph.valid_paths(request_type), request_type.name


def test_the_reference_lists_the_models_that_can_be_planned() -> None:
    section = (
        PROFILES.read_text(encoding="utf-8").split("## Shipped profiles")[1].split("These models can be planned")[0]
    )
    listed = [
        name for row in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE) for name in re.findall(r"`(.+?)`", row)
    ]

    assert sorted(listed) == list(shipped_models())
    for name in listed:
        assert load_inputs(name).problem.usable


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("qwen2.5-vll", r"did you mean qwen2\.5-vl-32b"),
        ("internvl3", "did you mean internvl3-38b"),
        ("gpt-5.1", r"the shipped models are internvl3-38b, .*\. To use your own, give a file"),
    ],
)
def test_an_unknown_model_is_refused_with_similar_names(name: str, advice: str) -> None:
    with pytest.raises(InvalidInputError, match=f"model: unknown model '{re.escape(name)}': {advice}"):
        load_inputs(name)


def test_modalities_with_unknown_components_are_rejected() -> None:
    fields = shipped_model("qwen-image").dump().replace('"image_generator"\n      ]\n    }\n  }', '"painter"]}}')
    assert "painter" in fields

    with pytest.raises(InvalidInputError, match="modalities: painter: not a component of the model"):
        ModelDocument.parse(fields, "m.json")
