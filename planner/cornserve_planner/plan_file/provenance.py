"""Records the origin of a plan: digests of its input files, rates and options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from pydantic import JsonValue

from cornserve_planner.inputs.planning_inputs import PlanInputs
from cornserve_planner.model.document import ModelDocument
from cornserve_planner.model.shipped import shipped_models
from cornserve_planner.plan_file.parts import InputKind, KnownRate, PlannedInput, Provenance
from cornserve_planner.workload.document import workload_files

_PACKAGE = files("cornserve_planner")


@dataclass(frozen=True)
class PlanOrigin:
    """The fields of a plan file that record the origin of the plan."""

    inputs: tuple[PlannedInput, ...]
    provenance: Provenance
    planner: str = field(default_factory=partial(version, "cornserve"))


def plan_origin(
    inputs: PlanInputs,
    model: str | ModelDocument,
    workload: Path | None,
    profile: Path | None,
    gpus: Path | None,
    *,
    factors: Mapping[str, float],
    options: Mapping[str, JsonValue],
) -> PlanOrigin:
    """
    Args:
        model: the name of a shipped model, a file, or the document that was derived from an app.
        workload, profile, gpus: files; None for shipped ones.
        factors: assumed colocation factors by option.
        options: the other options of the command.
    """
    name = inputs.model.name
    found = [
        _model(model),
        _given("profile", profile) if profile else _shipped("profile", f"profiles/data/models/{name}.json"),
        *(
            (_given("workload", file) for file in workload_files(workload))
            if workload
            else [_shipped("workload", f"workload/shipped/{name}.yaml")]
        ),
        _given("gpu types", gpus) if gpus else _shipped("gpu types", "profiles/data/gpus.yaml"),
    ]
    return PlanOrigin(
        inputs=tuple(found),
        provenance=Provenance(
            rates=tuple(KnownRate(option=option, **rate.model_dump()) for option, rate in inputs.rates),
            factors=dict(factors),
            options=dict(options),
        ),
    )


def _model(model: str | ModelDocument) -> PlannedInput:
    if isinstance(model, ModelDocument):
        return PlannedInput(
            kind="model", file=model.name, shipped=False, sha256=sha256(model.dump().encode()).hexdigest()
        )
    if model in shipped_models():
        return _shipped("model", f"model/shipped/{model}.yaml")
    return _given("model", Path(model))


def _given(kind: InputKind, path: Path) -> PlannedInput:
    return PlannedInput(kind=kind, file=path.name, shipped=False, sha256=sha256(path.read_bytes()).hexdigest())


def _shipped(kind: InputKind, path: str) -> PlannedInput:
    digest = sha256((_PACKAGE / path).read_bytes()).hexdigest()
    return PlannedInput(kind=kind, file=path.rpartition("/")[2], shipped=True, sha256=digest)
