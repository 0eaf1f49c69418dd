"""A model of an encoder and a language model, its executor graph, and plans of it."""

from __future__ import annotations

from typing import Any

from cornserve.app.graph import AppGraph, GraphOption, GraphPath, GraphStep
from cornserve.app.plan import AppPlan
from cornserve.task.unit import UnitTask
from cornserve_echo.stages import StageTask

MONOLITH = StageTask(seconds={"encoder": 0.1, "llm": 0.1})
ENCODER = StageTask(seconds={"encoder": 0.1})
LLM = StageTask(seconds={"llm": 0.1})


def graph() -> AppGraph:
    """Returns the graph of the paths `EL` and `E, L`, with texts and images."""
    text, images = ("llm",), ("encoder", "llm")
    return AppGraph(
        components={"encoder": (), "llm": ("encoder",)},
        options={"EL": _option(MONOLITH), "E": _option(ENCODER), "L": _option(LLM)},
        types={"llm": text, "encoder+llm": images},
        paths=(
            GraphPath(
                task="Caption",
                steps={
                    "llm": (GraphStep(option="EL", components=text),),
                    "encoder+llm": (GraphStep(option="EL", components=images),),
                },
            ),
            GraphPath(
                task="Caption",
                steps={
                    "llm": (GraphStep(option="L", components=text),),
                    "encoder+llm": (
                        GraphStep(option="E", components=("encoder",)),
                        GraphStep(option="L", components=text),
                    ),
                },
            ),
        ),
    )


def _option(task: StageTask) -> GraphOption:
    return GraphOption(
        executor=task.key,
        task="StageTask",
        settings=task.model_dump(mode="json", exclude_defaults=True),
        components=tuple(task.seconds),
        gpus=task.spec.gpus,
    )


def cell(gpus: int, replicas: dict[str, int], **fields: Any) -> dict[str, Any]:
    """Returns a cell whose images take the first path that has replicas."""
    path = [1.0, 0.0] if "EL" in replicas else [0.0, 1.0]
    return {
        "gpus": gpus,
        "count": 0,
        "rate": 5.0 * gpus,
        "replicas": replicas,
        "loads": dict.fromkeys(replicas, 0.5),
        "probabilities": {"text": path, "images": path},
    } | fields


def plan_document(*cells: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Returns a plan. By default, it runs one cell with an encoder and two language models."""

    def paths(*options: tuple[str, ...]) -> list[dict[str, Any]]:
        components = {"EL": ["encoder", "llm"], "E": ["encoder"], "L": ["llm"]}
        return [{"steps": [{"option": name, "components": components[name]} for name in path]} for path in options]

    text = [{"steps": [{"option": name, "components": ["llm"]}]} for name in ("EL", "L")]
    return {
        "options": {name: _settings(task) for name, task in (("EL", MONOLITH), ("E", ENCODER), ("L", LLM))},
        "types": {
            "text": {"components": ["llm"], "share": 0.25, "paths": text},
            "images": {"components": ["encoder", "llm"], "share": 0.75, "paths": paths(("EL",), ("E", "L"))},
        },
        "default_type": "images",
        "cells": [*cells] or [cell(3, {"E": 1, "L": 2}, count=1)],
        "planner": "1.0",
    } | fields


def plan(*cells: dict[str, Any], **fields: Any) -> AppPlan:
    return AppPlan.model_validate(plan_document(*cells, **fields))


def _settings(task: UnitTask[Any, Any]) -> dict[str, Any]:
    return {
        "task": "StageTask",
        "settings": task.model_dump(mode="json", exclude_defaults=True),
        "gpus": task.spec.gpus,
    }
