from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from cornserve.kubernetes_resources.crd import app_crd, route_crd, schema_hash, to_yaml, write
from cornserve.kubernetes_resources.labels import SCHEMA_HASH_ANNOTATION

MAX_CRD_BYTES = 100_000


def schemas(schema: Any) -> Iterator[dict[str, Any]]:
    match schema:
        case dict():
            yield schema
            for value in schema.values():
                yield from schemas(value)
        case list():
            for value in schema:
                yield from schemas(value)


@pytest.fixture(scope="module")
def crds() -> dict[str, dict[str, Any]]:
    return {"App": app_crd(), "AppRoute": route_crd()}


def test_the_crds_are_small(crds: dict[str, dict[str, Any]]) -> None:
    assert sum(len(to_yaml(crd)) for crd in crds.values()) < MAX_CRD_BYTES


@pytest.mark.parametrize("kind", ["App", "AppRoute"])
def test_the_schema_is_structural_and_bounded(crds: dict[str, dict[str, Any]], kind: str) -> None:
    schema = crds[kind]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for found in schemas(schema):
        assert not {"$ref", "anyOf", "title", "additionalItems"} & found.keys()
        if found.get("type") == "array":
            assert "maxItems" in found
            assert "x-kubernetes-list-type" in found
        if isinstance(found.get("type"), str) and "properties" not in found and found["type"] == "object":
            assert (
                found.get("x-kubernetes-preserve-unknown-fields")
                or "maxProperties" in found
                or found == {"type": "object"}
            )


def test_only_free_form_fields_keep_unknown_fields(crds: dict[str, dict[str, Any]]) -> None:
    resource = crds["App"]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    spec, status = (resource[name]["properties"] for name in ("spec", "status"))
    override, profile = spec["executors"]["items"]["properties"], spec["planning"]["properties"]["profile"]
    plans = spec["plan"], status["adaptation"]["properties"]["planProposal"]["properties"]["plan"]
    options = [plan["properties"]["options"]["additionalProperties"]["properties"] for plan in plans]
    measured = spec["measured"]["properties"]["profile"]
    free = [
        *(option["settings"] for option in options),
        profile,
        measured,
        override["options"],
        override["podTemplate"],
    ]
    found = [each for each in schemas(crds["App"]) if each.get("x-kubernetes-preserve-unknown-fields")]
    assert sorted(map(str, found)) == sorted(map(str, free))


def test_every_field_has_a_description(crds: dict[str, dict[str, Any]]) -> None:
    for crd in crds.values():
        properties = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
        for found in schemas({name: properties[name] for name in ("spec", "status")}):
            for name, field in found.get("properties", {}).items():
                assert field.get("description"), name


def test_the_hash_changes_with_the_schema_and_not_with_descriptions(crds: dict[str, dict[str, Any]]) -> None:
    crd = deepcopy(crds["App"])
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    before = crd["metadata"]["annotations"][SCHEMA_HASH_ANNOTATION]
    assert schema_hash(schema) == before

    schema["properties"]["spec"]["properties"]["replicas"]["description"] = "another"
    assert schema_hash(schema) == before
    schema["properties"]["spec"]["properties"]["replicas"]["maximum"] = 65
    assert schema_hash(schema) != before


def test_helm_reads_no_template_in_the_crds(tmp_path: Path) -> None:
    write(tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == {"apps.yaml", "approutes.yaml"}
    assert not any("{{" in file.read_text() for file in tmp_path.iterdir())
