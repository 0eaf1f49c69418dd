"""Reads and validates forms with files."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, TypeVar

from pydantic import BaseModel, GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationError
from pydantic_core import CoreSchema, core_schema
from starlette.requests import Request

from cornserve.gateway.endpoints.read_request import LARGE_BYTES, client_identity
from cornserve.gateway.endpoints.unsupported_fields import UNSUPPORTED_FIELDS
from cornserve.gateway.errors import ApiError
from cornserve.gateway.http.form_body import FormPart, form_boundary, split_form
from cornserve.gateway.http.request_body import take_any_body
from cornserve.limits import MIB

Form = TypeVar("Form", bound=BaseModel)


class Upload:
    """A file of a form. Its content is a part of the request's body until `take`."""

    __slots__ = ("_content", "size")

    def __init__(self, content: memoryview) -> None:
        self._content: memoryview | None = content
        self.size = len(content)
        """The size in bytes."""

    def __repr__(self) -> str:
        return f"a file of {self.size} bytes"

    def take(self) -> bytes:
        """Returns the content and drops it, so that the body does not stay in memory until the response."""
        assert self._content is not None
        content, self._content = bytes(self._content), None
        return content

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.custom_error_schema(
            core_schema.is_instance_schema(cls), "file", custom_error_message="must be a file"
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"type": "string", "format": "binary"}


async def read_form(request: Request, form_type: type[Form]) -> Form:
    """Returns the form as a `form_type`. Empty fields count as omitted. Raises an `ApiError` (400, 413, 415)."""
    body = take_any_body(request)
    boundary = form_boundary(body.content_type)
    content = body.detach()
    split = partial(split_form, content, boundary)
    is_small = len(content) <= LARGE_BYTES
    parts = split() if is_small else await body.admission.large_work.run(split, client_identity(request))
    if sum(len(part.content) for part in parts if not part.is_file) > body.admission.limits.text_mib * MIB:
        raise body.admission.text_too_large(len(content))
    try:
        return form_type.model_validate(_fields(parts))
    except ValidationError as error:
        raise ApiError.from_validation_error(error, reasons=UNSUPPORTED_FIELDS) from error


def _fields(parts: Sequence[FormPart]) -> dict[str, Any]:
    """Returns the values by name. The values of a name that ends in [] are a list."""
    fields: dict[str, Any] = {}
    for name, content, is_file in parts:
        value = Upload(content) if is_file else _text(name, content)
        if name.endswith("[]"):
            fields.setdefault(name, []).append(value)
        elif name in fields:
            raise ApiError(400, f"{name}: the form has the field twice", param=name, code="invalid_value")
        elif value:
            fields[name] = value
    return fields


def _text(name: str, content: memoryview) -> str:
    try:
        return str(content, "utf-8")
    except UnicodeDecodeError:
        raise ApiError(400, f"{name}: not valid UTF-8", param=name, code="invalid_value") from None
