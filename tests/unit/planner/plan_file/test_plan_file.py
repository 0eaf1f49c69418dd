"""The plan file: reading restores the plan, and every altered field is refused or changes the meaning."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

import pytest

from cornserve_planner.adaptation.mixture import adapt_mixture
from cornserve_planner.errors import InvalidInputError
from cornserve_planner.plan_file.document import PlanFile
from cornserve_planner.planning.model_plan import make_plan
from cornserve_planner.planning.request import PlanRequest
from cornserve_planner.planning.result import PlanResult
from cornserve_planner.solve.cells import efficient_cells, fewest_gpus, most_requests

REQUESTS = {
    "cells of one type": PlanRequest("qwen2.5-omni-7b", rate=10, factors={"monolith": 3.0}, largest_cell=16),
    "hybrid paths": PlanRequest("internvl3-38b", gpus=16),
    "one plan": PlanRequest("qwen2.5-vl-32b", gpus=5, whole=True, factors={"monolith": 1.5}),
    "fewest dollars": PlanRequest("llava-1.5-7b", rate=10, objective="dollars"),
    "two GPU types": PlanRequest("llava-1.5-7b", gpus_of={"RTX-4090": 2, "A100-80GB": 2}),
}

FREE = [
    r"models\..*",
    r"components\.[^.]*\.after.*",
    r"gpu_types\.[^.]*\.memory",
    r"options\.[^.]*\.(batch|memory|startup|limits|limits\..*|max_utilization|task|settings|settings\..*|components\..*)",
    r"options\.[^.]*",
    r"types\.[^.]*\.components\..*",
    r"types\.[^.]*\.paths\..*\.(seconds|low|high|tag|components\..*)",
    r"cells\.\d*",
    r"cells\.\d*\.count",
    r"cells\.\d*\.(relaxation|proven|ties_settled|solver|solve_seconds|kept)",
    r"default_type",
    r"target",
    r"planner",
    r"inputs\..*",
    r"provenance\..*",
]
"""Fields that do not follow from others. An altered one is either refused or changes what the file means."""

Location = tuple[str | int, ...]


def requests(*fast: str) -> list[Any]:
    """Returns the names of requests as parameters. Those that are not fast are in the slow tier."""
    return [pytest.param(name, marks=() if name in fast else pytest.mark.slow) for name in REQUESTS]


@pytest.fixture(scope="module", params=requests(*(REQUESTS.keys() - {"cells of one type"})))
def result(request: pytest.FixtureRequest) -> PlanResult:
    return make_plan(REQUESTS[request.param])


@dataclass(frozen=True)
class Alteration:
    """A change of one field. `where` names the field."""

    where: Location
    change: str
    document: Any


def locations(value: Any, at: Location = ()) -> Iterator[Location]:
    """Yields the locations of all fields and elements."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in items:
        yield (*at, name)
        yield from locations(part, (*at, name))


def alterations(document: Any, where: Location) -> Iterator[Alteration]:
    """Yields the document without a field, with another name of it, and with other values."""

    text = json.dumps(document)

    def altered(change: str, *, value: Any = None, name: str | None = None) -> Alteration:
        copied = json.loads(text)
        *path, last = where
        parent = copied
        for part in path:
            parent = parent[part]
        if change == "delete":
            del parent[last]
        elif name is not None:
            entries = [(name if key == last else key, entry) for key, entry in parent.items()]
            parent.clear()
            parent.update(entries)
        else:
            parent[last] = value
        return Alteration(where, change, copied)

    current = document
    for part in where:
        current = current[part]
    yield altered("delete")
    if isinstance(where[-1], str):
        yield altered("rename", name=f"{where[-1]}x")
    match current:
        case bool():
            yield altered("negate", value=not current)
        case int() | float():
            numbers = {type(current)(number) for number in (2 * current + 1, current / 2, -1, 1e300)}
            yield from (altered(f"= {number}", value=number) for number in numbers - {current})
            yield altered("as text", value=str(current))
        case str():
            yield altered("another text", value=f"{current}x")
            yield altered("empty", value="")
        case None:
            yield altered("a number", value=1)


def dotted(where: Location) -> str:
    return ".".join(map(str, where))


def kind_of(where: Location) -> Location:
    """Returns a location without indices and names that a user chose."""
    fixed: list[str | int] = ["*" if isinstance(part, int) else part for part in where]
    chosen = 3 if where[0] == "cells" else 1 if where[0] not in ("provenance", "cells") else 2
    return tuple("*" if index == chosen else part for index, part in enumerate(fixed))


def sample(document: Any) -> list[Alteration]:
    """Draws a field of each kind at random, and 20 others."""
    found = list(locations(document))
    Random(0).shuffle(found)
    chosen = [*{kind_of(where): where for where in found}.values(), *found[:20]]
    return [alteration for where in chosen for alteration in alterations(document, where)]


def parsed(text: str) -> tuple[PlanFile | None, str]:
    """Returns the file, or None and why it is refused."""
    try:
        return PlanFile.parse(text, "plan.json"), ""
    except InvalidInputError as error:
        return None, str(error)


@pytest.mark.parametrize("result", requests("hybrid paths", "fewest dollars"), indirect=True)
def test_an_altered_field_is_refused_by_name_or_changes_the_meaning(result: PlanResult) -> None:
    original = result.file
    document = json.loads(original.dump())
    names = {"document", *(str(part) for where in locations(document) for part in where)}
    for alteration in sample(document):
        text = json.dumps(alteration.document)
        read, refusal = parsed(text)
        if read is None:
            source, where = refusal.split(": ")[:2]
            assert source == "plan.json"
            assert set(where.split(".")) & names, refusal
            continue
        assert json.loads(read.dump()) == alteration.document
        assert read != original
        where = dotted(alteration.where)
        unused = [f"options.{name}.gpus" for name in read.options if not any(name in c.replicas for c in read.cells)]
        assert where in unused or any(re.fullmatch(pattern, where) for pattern in FREE), alteration


@pytest.mark.parametrize("field", ["count", "replicas", "idle"])
def test_counts_beyond_the_range_of_floats_are_refused_by_name(result: PlanResult, field: str) -> None:
    document = json.loads(result.file.dump())
    cell = document["cells"][-1]
    kinds = cell if field == "count" else cell[field]
    kinds["count" if field == "count" else next(iter(cell["gpus_of" if field == "idle" else field]))] = 10**400

    read, refusal = parsed(json.dumps(document))

    assert read is None
    assert re.match(rf"plan\.json: cells\.\d+\.{field}.*: must be less than or equal to", refusal)


def test_reading_restores_the_plan(result: PlanResult, tmp_path: Path) -> None:
    result.save(tmp_path / "plan.json")
    read = PlanFile.read(tmp_path / "plan.json")

    assert read == result.file
    assert read.problem == result.inputs.problem
    solved = [cell for cell in result.cells if cell.plan]
    assert [(cell.gpus, cell.rate) for cell in read.solved_cells] == [(cell.gpus, cell.rate) for cell in solved]
    for found, cell in zip(read.solved_cells, solved, strict=True):
        assert found.plan is not None
        assert cell.plan is not None
        changing = {"rates", "rate"}
        assert found.plan.model_dump(exclude=changing) == cell.plan.model_dump(exclude=changing)
        for kind in read.types:
            assert found.plan.shares_of(kind) == pytest.approx(cell.plan.shares_of(kind))


def test_reading_preserves_mixtures_and_adaptations(result: PlanResult) -> None:
    read = PlanFile.parse(result.file.dump(), "plan.json").solved_cells
    solved = [cell for cell in result.cells if cell.plan]

    assert efficient_cells(read) == tuple(
        cell for cell in read if cell.gpus in {kept.gpus for kept in efficient_cells(solved)}
    )
    for rate in (0.1, 1.0, 7.3, 40.0):
        assert fewest_gpus(read, rate) == fewest_gpus(solved, rate)
        assert adapt_mixture(read, result.file.counts, rate) == adapt_mixture(solved, result.file.counts, rate)
    assert most_requests(read, 100) == most_requests(solved, 100)


def test_the_json_schema_accepts_plan_files_and_requires_every_field(result: PlanResult) -> None:
    jsonschema = import_module("jsonschema")
    validator = jsonschema.Draft202012Validator(PlanFile.json_schema())
    document = json.loads(result.file.dump())

    assert validator.is_valid(document)
    for name in document:
        assert not validator.is_valid({key: value for key, value in document.items() if key != name})
        assert not validator.is_valid({**document, f"{name}x": 1})


def test_every_combination_of_modalities_has_a_route(result: PlanResult) -> None:
    rare = {name for name, kind in result.file.types.items() if not kind.share}

    for cell in result.file.cells:
        for name in rare:
            found = cell.probabilities[name]
            assert sorted(found) == [0.0] * (len(found) - 1) + [1.0] or not found


def test_a_plan_file_of_an_old_version_is_refused_with_advice() -> None:
    for head in (
        {"format": "cornserve-planner/proposal", "version": 1},
        {"format": "cornserve-planner/plan", "version": 1},
        {"format": "cornserve-planner/plan", "version": 2},
    ):
        with pytest.raises(
            InvalidInputError, match=r"p\.json: (format|version): .*make the plan again with `cornserve"
        ):
            PlanFile.parse(json.dumps(head), "p.json")
    with pytest.raises(InvalidInputError, match=r"version: unsupported version 7: this release reads version 5"):
        PlanFile.parse('{"format": "cornserve-planner/plan", "version": 7}', "p.json")


def test_a_file_of_another_kind_is_refused_by_its_format() -> None:
    with pytest.raises(InvalidInputError, match=r"format: must be 'cornserve-planner/plan', not 'cornserve-planner/op"):
        PlanFile.parse('{"format": "cornserve-planner/options", "version": 1}', "p.json")
