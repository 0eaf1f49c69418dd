"""OpenAPI descriptions of the bodies that handlers parse themselves, and of the errors."""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import BaseModel

from cornserve.gateway.errors import ErrorBody
from cornserve.gateway.http.request_body import JSON

ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": ErrorBody, "description": "The request is invalid, or cannot be served now."},
    "5XX": {"model": ErrorBody, "description": "The request failed."},
}


@cache
def request_body(model: type[BaseModel] | None, content_type: str = JSON) -> dict[str, Any]:
    """Returns the `openapi_extra` of a route whose handler reads a `model`, or any JSON, from its body."""
    schema = {} if model is None else model.model_json_schema()
    definitions = schema.pop("$defs", {})
    content = {content_type: {"schema": _inline(schema, definitions)}}
    return {"requestBody": {"required": True, "content": content}}


def _inline(schema: Any, definitions: dict[str, Any]) -> Any:
    """Replaces references with their definitions: relative to the whole document, they would be invalid."""
    match schema:
        case {"$ref": str(reference), **rest}:
            return _inline(definitions[reference.rpartition("/")[2]] | rest, definitions)
        case dict():
            return {key: _inline(value, definitions) for key, value in schema.items()}
        case list():
            return [_inline(value, definitions) for value in schema]
        case _:
            return schema
