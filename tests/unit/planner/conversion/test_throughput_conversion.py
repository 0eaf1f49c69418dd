"""Conversion of measured throughputs to seconds: [C Algorithm 3], fits of several mixes, and errors."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from cornserve_planner.conversion.throughput_conversion import convert
from cornserve_planner.conversion.throughput_measurement import ThroughputMeasurement
from cornserve_planner.errors import InvalidInputError
from cornserve_planner.model.graph import DeclaredPath, DeploymentOption, ExecutorGraph, ModelComponent, RequestType
from cornserve_planner.model.problem import PlanningProblem

GRAPH = ExecutorGraph(
    components=(ModelComponent("encoder"), ModelComponent("llm", after=("encoder",))),
    options=(
        DeploymentOption("E", ("encoder",)),
        DeploymentOption("L", ("llm",)),
        DeploymentOption("EL", ("encoder", "llm")),
    ),
    paths=(DeclaredPath(("EL",)), DeclaredPath(("E", "L")), DeclaredPath(("E", "EL"))),
)
TEXT = RequestType("text", frozenset({"llm"}))
IMAGE = RequestType("image", frozenset({"encoder", "llm"}))
HALF = {"text": 0.5, "image": 0.5}
ALONE = (ThroughputMeasurement("E", 4.0, HALF), ThroughputMeasurement("L", 2.0, HALF))
"""Half of the requests have an image, which takes 0.5 s. The language model takes 0.5 s for each request."""


def test_seconds_of_a_component_come_from_the_requests_that_need_it() -> None:
    seconds = convert(GRAPH, [TEXT, IMAGE], [*ALONE, ThroughputMeasurement("EL", 1.0, HALF)]).seconds
    assert seconds["E", "encoder"] == pytest.approx(0.5)
    assert seconds["L", "llm"] == pytest.approx(0.5)


def test_the_factor_of_components_together_matches_the_measured_mix() -> None:
    conversion = convert(GRAPH, [TEXT, IMAGE], [*ALONE, ThroughputMeasurement("EL", 1.0, HALF)])
    assert conversion.factors == {"E": 1.0, "L": 1.0, "EL": pytest.approx(1 / 0.75)}
    assert conversion.checks == ()
    problem = PlanningProblem.from_graph(GRAPH, {TEXT: 0.5, IMAGE: 0.5}, conversion)
    whole = {path.type: path.seconds["EL"] for path in problem.paths if path.name == "EL"}
    assert 0.5 * whole["text"] + 0.5 * whole["image"] == pytest.approx(1.0)
    hybrid = next(path for path in problem.paths if path.name == "E → EL")
    assert hybrid.seconds == {"E": pytest.approx(0.5), "EL": pytest.approx(0.5 / 0.75)}


def test_seconds_are_multiplied_by_the_frequency_of_a_component() -> None:
    """Of 100 images, 30 are encoded after the first answer, and the language model runs 150 times."""
    chat = RequestType("chat", frozenset({"encoder", "llm"}), {"encoder": 0.3, "llm": 1.5})
    problem = PlanningProblem.from_graph(
        GRAPH, {chat: 1.0}, convert(GRAPH, [TEXT, IMAGE, chat], ALONE, factors={"EL": 1.0})
    )

    seconds = {path.name: path.seconds for path in problem.paths}
    assert seconds["E → L"] == {"E": pytest.approx(0.3 * 0.5), "L": pytest.approx(1.5 * 0.5)}
    assert seconds["EL"] == {"EL": pytest.approx(0.3 * 0.5 + 1.5 * 0.5)}


def test_options_whose_components_no_request_needs_are_not_measured() -> None:
    graph = ExecutorGraph(GRAPH.components, GRAPH.options[:2], (DeclaredPath(("E", "L")),))
    conversion = convert(graph, [TEXT], [ThroughputMeasurement("L", 2.0, {"text": 1.0})])
    assert conversion.seconds == {("L", "llm"): pytest.approx(0.5)}


def test_several_mixes_are_fitted_together() -> None:
    images = ThroughputMeasurement("EL", 0.6, {"image": 1.0})
    conversion = convert(GRAPH, [TEXT, IMAGE], [*ALONE, ThroughputMeasurement("EL", 1.0, HALF), images])
    half, whole = conversion.checks
    assert [half.measurement.rate, whole.measurement] == [1.0, images]
    assert -0.1 < half.error < 0 < whole.error < 0.1
    assert conversion.seconds["EL", "encoder"] > 0.5 * 4 / 3
    assert 0.4 < conversion.seconds["EL", "llm"] < 0.5 * 4 / 3


def test_a_component_with_other_seconds_than_its_factor_is_recognised_in_exact_mixes() -> None:
    exact = [replace(m, error=0.001) for m in mixes(0.4, 0.9, 0.0, 1.0)]
    conversion = convert(GRAPH, [TEXT, IMAGE], [*ALONE, *exact])
    assert conversion.seconds["EL", "encoder"] == pytest.approx(0.4, rel=0.01)
    assert conversion.seconds["EL", "llm"] == pytest.approx(0.9, rel=0.01)


def test_a_factor_can_be_assumed_for_an_option_without_measurements() -> None:
    conversion = convert(GRAPH, [TEXT, IMAGE], ALONE, factors={"EL": 1.2})
    assert conversion.seconds["EL", "llm"] == pytest.approx(0.6)


def test_the_factor_is_relative_to_the_same_gpus() -> None:
    graph = ExecutorGraph(
        GRAPH.components,
        (*GRAPH.options, DeploymentOption("L2", ("llm",), gpus=2), DeploymentOption("EL2", ("encoder", "llm"), gpus=2)),
        (DeclaredPath(("EL",)), DeclaredPath(("E", "L")), DeclaredPath(("E", "L2")), DeclaredPath(("EL2",))),
    )
    conversion = convert(
        graph, [TEXT, IMAGE], [*ALONE, ThroughputMeasurement("L2", 4.0, HALF)], factors={"EL": 1.0, "EL2": 1.0}
    )
    assert conversion.seconds["EL2", "llm"] == pytest.approx(0.25)
    assert conversion.seconds["EL2", "encoder"] == pytest.approx(0.5)


def mixes(encoder: float, llm: float, *images: float) -> list[ThroughputMeasurement]:
    """Returns measurements of a monolith with these seconds, at these shares of images."""
    return [
        ThroughputMeasurement("EL", 1 / (llm + share * encoder), {"text": 1 - share, "image": share})
        for share in images
    ]


def test_two_mixes_separate_components_that_were_not_measured_alone() -> None:
    graph = ExecutorGraph(GRAPH.components, GRAPH.options, (DeclaredPath(("EL",)),))
    conversion = convert(graph, [TEXT, IMAGE], mixes(0.3, 0.7, 0.2, 0.9))
    assert conversion.seconds == {("EL", "encoder"): pytest.approx(0.3), ("EL", "llm"): pytest.approx(0.7)}
    assert conversion.checks == ()


def test_components_that_no_request_needs_are_not_separated_from_others() -> None:
    """The encoder and the monolith can also encode videos, but no request has one."""
    options = (DeploymentOption("E", ("encoder", "video")), DeploymentOption("EL", ("encoder", "video", "llm")))
    components = (*GRAPH.components, ModelComponent("video"))
    alone = ThroughputMeasurement("E", 4.0, HALF)

    graph = ExecutorGraph(components, options, (DeclaredPath(("EL",)),))
    conversion = convert(graph, [TEXT, IMAGE], mixes(0.3, 0.7, 0.2, 0.9))
    assert conversion.seconds == {("EL", "encoder"): pytest.approx(0.3), ("EL", "llm"): pytest.approx(0.7)}

    graph = ExecutorGraph(components, options, (DeclaredPath(("E", "EL")),))
    conversion = convert(graph, [TEXT, IMAGE], [alone, *mixes(0.6, 0.7, 0.2, 0.9)])
    assert conversion.seconds["E", "encoder"] == pytest.approx(0.5)
    assert conversion.factors["EL"] == pytest.approx(1.2)


def test_components_that_all_requests_need_on_the_same_options_are_not_separated() -> None:
    graph = ExecutorGraph(GRAPH.components, GRAPH.options, (DeclaredPath(("EL",)),))

    conversion = convert(graph, [IMAGE], [ThroughputMeasurement("EL", 2.0, {"image": 1.0})])

    ((valid, (step,)),) = [(path, path.steps) for path in graph.valid_paths(IMAGE)]
    assert valid.name == "EL"
    assert conversion(IMAGE, step) == pytest.approx(0.5)


def test_one_unknown_component_needs_two_mixes_because_the_factor_is_also_unknown() -> None:
    graph = ExecutorGraph(GRAPH.components, GRAPH.options, (DeclaredPath(("EL",)), DeclaredPath(("E", "EL"))))
    alone = ThroughputMeasurement("E", 4.0, HALF)
    conversion = convert(graph, [TEXT, IMAGE], [alone, *mixes(0.6, 0.7, 0.2, 0.9)])
    assert conversion.factors["EL"] == pytest.approx(1.2)
    assert conversion.seconds["EL", "llm"] == pytest.approx(0.7)
    with pytest.raises(
        InvalidInputError, match=r"components\.llm: was never measured alone, and EL, measured at 1 mix"
    ):
        convert(graph, [TEXT, IMAGE], [alone, *mixes(0.6, 0.7, 0.5)])


def test_more_mixes_than_needed_leave_residuals() -> None:
    graph = ExecutorGraph(GRAPH.components, GRAPH.options, (DeclaredPath(("EL",)),))
    noisy = mixes(0.3, 0.7, 0.0, 1.0) + mixes(0.33, 0.7, 0.5)
    conversion = convert(graph, [TEXT, IMAGE], noisy)
    assert len(conversion.checks) == 3
    assert max(abs(check.error) for check in conversion.checks) < 0.02


def test_equal_mixes_do_not_separate_components() -> None:
    graph = ExecutorGraph(GRAPH.components, GRAPH.options, (DeclaredPath(("EL",)),))
    with pytest.raises(InvalidInputError, match=r"components\.encoder: .* measured at 3 mixes, does not separate it"):
        convert(graph, [TEXT, IMAGE], mixes(0.3, 0.7, 0.5, 0.5, 0.5))


def test_contradicting_mixes_are_rejected() -> None:
    graph = ExecutorGraph(GRAPH.components, GRAPH.options, (DeclaredPath(("EL",)),))
    with pytest.raises(InvalidInputError, match=r"EL: contradict each other: encoder would be -0\.2"):
        convert(graph, [TEXT, IMAGE], mixes(-0.2, 0.7, 0.1, 0.9))


@pytest.mark.parametrize(
    ("measurements", "factors", "error"),
    [
        ([ThroughputMeasurement("X", 1.0, HALF)], {}, "measurements of X: is not an option of the model"),
        (
            [ThroughputMeasurement("E", -1.0, HALF)],
            {},
            r"measurements of E\.rate: must be a finite number greater than 0, not -1",
        ),
        (
            [ThroughputMeasurement("E", math.nan, HALF)],
            {},
            r"measurements of E\.rate: must be a finite number greater than 0, not nan",
        ),
        (
            [ThroughputMeasurement("E", 1.0, {"text": 0.5})],
            {},
            r"measurements of E\.mix: the shares add up to 0\.5, not to 1",
        ),
        ([ThroughputMeasurement("E", 1.0, {})], {}, r"measurements of E\.mix: the shares add up to 0, not to 1"),
        (
            [ThroughputMeasurement("E", 1.0, {"audio": 1.0})],
            {},
            r"measurements of E\.mix: 'audio' is not a request type",
        ),
        (
            [ThroughputMeasurement("E", 1.0, {"text": -1, "image": 2})],
            {},
            r"E\.mix\.text: must be a finite number of at least 0, not -1",
        ),
        (
            [ThroughputMeasurement("E", 1.0, {"text": 1.0})],
            {},
            "measurements of E: no request of the mix needs encoder",
        ),
        ([ALONE[0]], {}, r"options\.L: was not measured"),
        (ALONE, {}, r"options\.EL: was not measured: measure it or give its factor"),
        (ALONE, {"EL": 0.0}, r"factors\.EL: must be from 0\.01 to 100, not 0"),
        (ALONE, {"EL": 1e300}, r"factors\.EL: must be from 0\.01 to 100, not 1e\+300"),
        (ALONE, {"EL": math.nan}, r"factors\.EL: must be from 0\.01 to 100, not nan"),
        (ALONE, {"X": 1.0}, r"factors\.X: is not an option on any path"),
        (ALONE, {"L": 1.0}, r"factors\.L: is assumed, but the option was measured"),
    ],
)
def test_invalid_measurements_are_rejected(
    measurements: list[ThroughputMeasurement], factors: dict[str, float], error: str
) -> None:
    with pytest.raises(InvalidInputError, match=error):
        convert(GRAPH, [TEXT, IMAGE], measurements, factors)
