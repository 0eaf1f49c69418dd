"""What `/openapi.json` says of bodies that handlers read themselves."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from cornserve.gateway.errors import ErrorBody

ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": ErrorBody, "description": "The request does not fit, or does not fit now."},
    "5XX": {"model": ErrorBody, "description": "It failed."},
}


def takes(model: type[BaseModel]) -> dict[str, Any]:
    """`openapi_extra` of a route whose body is a `model`.

    Handlers read it by `json_of` or `body_of`, because FastAPI's own way costs more than all else that they do.
    """
    return _takes(model.model_json_schema())


def takes_any_json() -> dict[str, Any]:
    """The same for a body that depends on the app."""
    return _takes({})


def _takes(schema: dict[str, Any]) -> dict[str, Any]:
    definitions = schema.pop("$defs", {})
    content = {"application/json": {"schema": _resolved(schema, definitions)}}
    return {"requestBody": {"required": True, "content": content}}


def _resolved(schema: Any, definitions: dict[str, Any]) -> Any:
    """With definitions in place of references to them, which would lead nowhere from the middle of the document."""
    match schema:
        case {"$ref": str(reference), **rest}:
            return _resolved(definitions[reference.rpartition("/")[2]] | rest, definitions)
        case dict():
            return {key: _resolved(value, definitions) for key, value in schema.items()}
        case list():
            return [_resolved(value, definitions) for value in schema]
        case _:
            return schema
