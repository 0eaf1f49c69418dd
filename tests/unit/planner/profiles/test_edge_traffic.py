"""Bytes on the edges of a path."""

from __future__ import annotations

import pytest

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.model.graph import RequestType
from cornserve_planner.model.problem import RequestPath
from cornserve_planner.model.shipped import shipped_model
from cornserve_planner.profiles.architecture import Architectures
from cornserve_planner.profiles.edge_traffic import CORNSERVE_TABLE_1, EdgeBytes

MODELS = Architectures.shipped()


def _bytes(model: str, components: set[str], others: dict[str, float] | None = None) -> dict[str, dict[str, float]]:
    """Returns MB by path and edge."""
    graph = shipped_model(model).graph()
    traffic = EdgeBytes(graph, MODELS[model].decoder(), CORNSERVE_TABLE_1, others or {})
    return {
        valid.path.name: {
            f"{start} > {end}": round(size / 1e6, 1)
            for (start, end), size in traffic(RequestPath(valid.type.name, valid.path.name, {}, valid.steps)).items()
        }
        for valid in graph.valid_paths(RequestType("t", frozenset(components)))
    }


def test_a_monolith_sends_nothing_and_a_prefill_much_more_than_an_encoder() -> None:
    assert _bytes("qwen2.5-vl-32b", {"image_encoder", "prefill", "decode"}) == {
        "monolith": {},
        "encoder → llm": {"encoder > llm": 6.1},
        "encoder → monolith": {"encoder > monolith": 6.1},
        "encoder+prefill → decode": {"encoder+prefill > decode": 419.4},
        "encoder → prefill → decode": {"encoder > prefill": 6.1, "prefill > decode": 419.4},
    }


def test_a_text_request_has_fewer_keys_and_values() -> None:
    found = _bytes("qwen2.5-vl-32b", {"prefill", "decode"})

    assert found["encoder+prefill → decode"] == {"encoder+prefill > decode": 262.1}


def test_a_thinker_sends_its_hidden_states_and_encoders_their_embeddings_together() -> None:
    found = _bytes("qwen2.5-omni-7b", {"image_encoder", "audio_encoder", "llm", "audio_generator"})

    assert found["encoders+llm → audio_generator"] == {"encoders+llm > audio_generator": 13.6}
    assert found["encoders → llm → audio_generator"] == {"encoders > llm": 5.7, "llm > audio_generator": 13.6}


def test_the_output_size_of_another_component_must_be_given() -> None:
    components = {"llm", "talker", "vocoder"}

    with pytest.raises(
        InvalidInputError, match=r"components\.talker: the size of its output is unknown: give its bytes in `others`"
    ):
        _bytes("qwen3-omni-30b-a3b", components)
    found = _bytes("qwen3-omni-30b-a3b", components, {"talker": 1e6})
    assert found["encoders+llm → talker → vocoder"]["talker > vocoder"] == 1.0
