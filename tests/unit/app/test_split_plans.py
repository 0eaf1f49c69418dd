"""Plans of apps with whole paths and paths that run parts of components."""

from __future__ import annotations

import pytest

from cornserve import App
from cornserve.app.graph import AppGraph
from cornserve.app.graph_recording import record_graph
from cornserve.app.plan import AppPlan
from cornserve.app.plan_resolution import resolve_plan
from cornserve.client.deploy_target import resolve_target
from cornserve.task.component_parts import ComponentParts, whole
from cornserve_tasklib.model_families import default_paths

PATHS = default_paths("Qwen/Qwen3-0.6B")


def graph_of(*names: str) -> AppGraph:
    graph = record_graph(App("a", [PATHS[name] for name in names]))
    assert graph is not None
    return graph


def plan(graph: AppGraph, *steps: tuple[str, str]) -> AppPlan:
    """Returns a plan with one path, whose steps are options and the components that they run."""
    options = {
        name: {"task": option.task, "settings": option.settings, "gpus": option.gpus}
        for name, option in graph.options.items()
        if name in dict(steps)
    }
    components = [component for _, component in steps]
    path = {"steps": [{"option": option, "components": [component]} for option, component in steps]}
    cell = {"gpus": len(options), "count": 1, "rate": 1.0, "replicas": dict.fromkeys(options, 1), "loads": {}}
    document = {
        "options": options,
        "types": {"text": {"components": components, "share": 1.0, "paths": [path]}},
        "default_type": "text",
        "cells": [cell | {"probabilities": {"text": [1.0]}}],
        "planner": "test",
    }
    return AppPlan.model_validate(document)


def test_a_plan_of_parts_runs_the_path_of_these_parts() -> None:
    graph = graph_of("chat", "p-d")
    resolved = resolve_plan(plan(graph, ("llm:prefill", "llm:prefill"), ("llm:decode", "llm:decode")), graph)

    assert resolved.cells[0].probabilities == {"text": [0.0, 1.0]}
    assert resolved.path_table().type_of({"llm"}) == "text"


@pytest.mark.parametrize("others", [(), ("p-d",)])
def test_a_plan_of_whole_components_does_not_depend_on_other_paths(others: tuple[str, ...]) -> None:
    resolved = resolve_plan(plan(graph_of("chat"), ("llm", "llm")), graph_of("chat", *others))

    assert resolved.cells[0].probabilities["text"][0] == 1.0


def test_a_component_is_joined_if_all_of_its_parts_are_there() -> None:
    parts = ComponentParts(["m/llm:prefill", "m/llm:decode", "encoder"])

    assert whole("Qwen2.5-VL/llm:prefill") == "Qwen2.5-VL/llm"
    assert parts.split(["m/llm", "encoder"]) == {"m/llm:prefill", "m/llm:decode", "encoder"}
    assert parts.joined(["encoder", "m/llm:prefill", "m/llm:decode"]) == ["encoder", "m/llm"]
    assert parts.joined(["m/llm:decode"]) == ["m/llm:decode"]


@pytest.mark.parametrize(
    ("steps", "paths"),
    [
        ([("llm:prefill", "llm:prefill"), ("llm:decode", "llm:decode")], {"chat", "p-d", "pd"}),
        ([("llm", "llm")], {"chat"}),
    ],
)
def test_a_model_has_the_split_paths_of_its_plan(steps: list[tuple[str, str]], paths: set[str]) -> None:
    target = resolve_target("Qwen/Qwen3-0.6B", name="a", plan=plan(graph_of("chat", "p-d"), *steps))

    assert target.spec.model is not None
    assert target.spec.model.shares is not None
    assert target.spec.model.shares.keys() == paths
