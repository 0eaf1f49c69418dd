"""The executor graph: nodes, edges, and the valid paths of each request type."""

from __future__ import annotations

import pytest

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.model.graph import (
    DeclaredPath,
    DeploymentOption,
    ExecutorGraph,
    ModelComponent,
    PathStep,
    RequestType,
)

OMNI = ExecutorGraph(
    components=(
        ModelComponent("image"),
        ModelComponent("audio"),
        ModelComponent("llm", after=("image", "audio")),
        ModelComponent("vocoder", after=("llm",)),
    ),
    options=(
        DeploymentOption("I", ("image",)),
        DeploymentOption("A", ("audio",)),
        DeploymentOption("L", ("llm",)),
        DeploymentOption("V", ("vocoder",)),
        DeploymentOption("IV", ("image", "vocoder")),
        DeploymentOption("IAL", ("image", "audio", "llm")),
    ),
    paths=(
        DeclaredPath(("I", "A", "L", "V")),
        DeclaredPath(("IAL", "V")),
        DeclaredPath(("I", "IAL", "V")),
        DeclaredPath(("IV", "L", "V")),
        DeclaredPath(("IV", "L", "IV")),
    ),
)


def type_of(*components: str) -> RequestType:
    return RequestType("+".join(components), frozenset(components))


def roles(request_type: RequestType) -> list[list[tuple[str, str]]]:
    return [[(step.option, "+".join(step.role)) for step in path.steps] for path in OMNI.valid_paths(request_type)]


def test_edges_are_data_dependencies_not_neighbours_on_a_path() -> None:
    assert OMNI.edges == {
        ("I", "L"), ("A", "L"), ("L", "V"), ("IAL", "V"), ("I", "IAL"), ("IV", "L"), ("L", "IV")
    }  # fmt: skip


def test_an_option_runs_only_components_that_earlier_options_did_not_run() -> None:
    assert roles(type_of("image", "llm")) == [
        [("I", "image"), ("L", "llm")],
        [("IAL", "image+llm")],
        [("I", "image"), ("IAL", "llm")],
        [("IV", "image"), ("L", "llm")],
    ]


def test_paths_with_equal_steps_for_a_type_count_once() -> None:
    assert roles(type_of("llm")) == [[("L", "llm")], [("IAL", "llm")]]
    assert [path.path.name for path in OMNI.valid_paths(type_of("llm"))] == ["I → A → L → V", "IAL → V"]


def test_a_component_waits_for_its_input_even_on_an_executor_that_has_it() -> None:
    assert [("IV", "image"), ("L", "llm"), ("V", "vocoder")] in roles(type_of("image", "llm", "vocoder"))
    assert [("IV", "image"), ("L", "llm"), ("IV", "vocoder")] in roles(type_of("image", "llm", "vocoder"))


def test_data_skips_components_that_a_type_does_not_need() -> None:
    path = next(path for path in OMNI.valid_paths(type_of("image", "vocoder")) if len(path.steps) == 2)
    assert path.steps == (PathStep("I", ("image",)), PathStep("V", ("vocoder",)))
    assert OMNI.transfers(path.steps) == (("I", "V"),)


@pytest.mark.parametrize(
    ("request_type", "error"),
    [
        (type_of("audio", "eye"), r"types\.audio\+eye: unknown components eye: use audio, image, llm, vocoder"),
        (RequestType("empty", frozenset()), r"types\.empty: has no components: give at least one of audio"),
    ],
)
def test_a_type_that_the_model_cannot_serve_is_rejected(request_type: RequestType, error: str) -> None:
    with pytest.raises(InvalidInputError, match=error):
        OMNI.valid_paths(request_type)


def test_the_error_for_a_type_without_a_path_names_the_missing_components() -> None:
    graph = ExecutorGraph(OMNI.components, OMNI.options, (DeclaredPath(("I", "L")),))
    with pytest.raises(
        InvalidInputError, match=r"types\.image\+llm\+vocoder: has no path: .* closest one omits vocoder"
    ):
        graph.valid_paths(type_of("image", "llm", "vocoder"))


def test_a_path_against_the_order_of_the_model_is_invalid() -> None:
    graph = ExecutorGraph(OMNI.components, OMNI.options, (DeclaredPath(("L", "I")),))
    with pytest.raises(InvalidInputError, match="has no path"):
        graph.valid_paths(type_of("image", "llm"))
