"""The workloads with which the papers measure the shipped models."""

from __future__ import annotations

from importlib.resources import files

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.model.document import ModelDocument
from cornserve_planner.workload.document import Workload, WorkloadDocument

_HERE = files("cornserve_planner.workload.shipped")


def shipped_workload(model: ModelDocument) -> Workload:
    """Raises `InvalidInputError` if the model has no shipped workload."""
    file = _HERE / f"{model.name}.yaml"
    if not file.is_file():
        raise InvalidInputError("workload", f"no shipped workload for {model.name!r}: give a file")
    return WorkloadDocument.read_shipped(file).to_workload()
