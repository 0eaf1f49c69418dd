"""The planner's model document of an app."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from cornserve.app.graph import AppGraph, GraphOption, GraphPath


def model_document(name: str, graph: AppGraph) -> dict[str, Any]:
    """Returns the fields of a `cornserve_planner.model.document.ModelDocument`."""
    document: dict[str, Any] = {
        "format": "cornserve-planner/model",
        "version": 1,
        "name": name,
        "components": {name: {"after": after} if after else {} for name, after in graph.components.items()},
        "options": {name: _option(option) for name, option in graph.options.items()},
        "paths": list(dict.fromkeys(options for path in graph.paths for options in _declared(path))),
    }
    if graph.modalities is not None and not graph.conditional:  # Modalities do not show how often those run.
        document["modalities"] = graph.modalities.model_dump(exclude_defaults=True)
    return document | {"types": graph.types}


def _option(option: GraphOption) -> dict[str, Any]:
    gpus = {"gpus": option.gpus} if option.gpus > 1 else {}
    return {
        "components": option.components,
        **gpus,
        "executor": {"task": option.task, "settings": option.settings},
    }


def _declared(path: GraphPath) -> Iterator[tuple[str, ...]]:
    """Yields the options of the path, in order. Types that skip some of these options are on the same path."""
    conditional = tuple(step.option for step in path.conditional)
    sequences = sorted({tuple(step.option for step in steps) for steps in path.steps.values()}, key=len, reverse=True)
    for index, options in enumerate(sequences):
        if not any(_is_subsequence(options, longer) for longer in sequences[:index]):
            yield (*options, *conditional)


def _is_subsequence(options: Sequence[str], longer: Sequence[str]) -> bool:
    remaining = iter(longer)
    return all(option in remaining for option in options)
