"""The shipped models serve every request type that their modalities allow."""

from __future__ import annotations

from itertools import product

import pytest

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.model_document import ModelDocument
from cornserve_planner.models import shipped_model, shipped_models


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


def test_modalities_with_unknown_components_are_rejected() -> None:
    fields = shipped_model("qwen-image").dump().replace('"image_generator"\n      ]\n    }\n  }', '"painter"]}}')
    assert "painter" in fields

    with pytest.raises(InvalidInputError, match="modalities: painter: not a component of the model"):
        ModelDocument.parse(fields, "m.json")
