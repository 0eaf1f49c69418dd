"""JSON schemas of clients. Before the first token, a grammar is made of each, which may keep an engine busy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import AfterValidator
from pydantic_core import to_json

MAX_BYTES = 64 << 10

MAX_COUNTED = 100
"""Properties of objects that count them. The grammar has a rule for each pair of a property and a count: of a hundred,
vLLM's compiler makes one in a second, of a thousand in many minutes."""

MAX_REPETITIONS = 1000
"""That patterns count. They are written out: `(foo|bar){1,1000}` takes vLLM's compiler a second, three times as many
ten seconds."""

_REPETITIONS = re.compile(r"\{(\d+)(?:,(\d*))?\}")


def _affordable(schema: dict[str, Any]) -> dict[str, Any]:
    if (size := len(to_json(schema))) > MAX_BYTES:
        raise ValueError(f"a schema has at most {MAX_BYTES} bytes, not {size}")
    objects = list(_objects(schema))
    if (counted := sum(map(_counted, objects))) > MAX_COUNTED:
        limits = f"objects with minProperties or maxProperties have at most {MAX_COUNTED} properties together"
        raise ValueError(f"{limits}, not {counted}")
    if (repetitions := sum(map(_repetitions, objects))) > MAX_REPETITIONS:
        raise ValueError(
            f"patterns count at most {MAX_REPETITIONS} repetitions together, not {repetitions}: "
            "for the length of a string there is maxLength"
        )
    return schema


Schema = Annotated[dict[str, Any], AfterValidator(_affordable)]


def _objects(value: object) -> Iterator[dict[str, Any]]:
    """All objects in a document."""
    match value:
        case dict():
            yield value
            for inner in value.values():
                yield from _objects(inner)
        case list():
            for inner in value:
                yield from _objects(inner)


def _counted(schema: dict[str, Any]) -> int:
    properties = schema.get("properties")
    counts = "minProperties" in schema or "maxProperties" in schema
    return len(properties) if counts and isinstance(properties, dict) else 0


def _repetitions(schema: dict[str, Any]) -> int:
    keys = schema.get("patternProperties")
    patterns = [schema.get("pattern"), *(keys if isinstance(keys, dict) else ())]
    return sum(
        max(int(least), int(most or 0))
        for pattern in patterns
        if isinstance(pattern, str)
        for least, most in _REPETITIONS.findall(pattern)
    )
