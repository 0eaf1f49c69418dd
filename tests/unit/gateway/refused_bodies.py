"""Requests that their models refuse, with and without a gateway."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import httpx2 as httpx
from pydantic import ValidationError

from cornserve.gateway.endpoints.unsupported_fields import UNSUPPORTED_FIELDS
from cornserve.gateway.errors import ApiError, ErrorDetail


def refusal(read: Callable[[Mapping[str, Any]], object], fields: Mapping[str, Any]) -> ErrorDetail:
    """Returns the error of a request with these fields, which is one of the client. None stands for an omitted field.

    Args:
        read: the function of a request model that reads the fields.
    """
    try:
        read({name: value for name, value in fields.items() if value is not None})
    except ValidationError as error:
        refused = ApiError.from_validation_error(error, reasons=UNSUPPORTED_FIELDS)
    except ApiError as error:
        refused = error
    else:
        raise AssertionError(f"the fields are valid: {fields}")
    assert refused.status == 400
    return refused.body.error


def assert_refused(response: httpx.Response, param: str | None, message: str) -> None:
    """Checks that a gateway has refused a request with an error that names the field."""
    error = response.json()["error"]
    assert response.status_code == 400, error
    assert message in error["message"], error
    assert (error["type"], error["param"]) == ("invalid_request_error", param)
    assert error["code"]
