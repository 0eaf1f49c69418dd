"""The treatment of fields of requests that Cornserve does not know: `cornserve up --unknown-fields`."""

from __future__ import annotations

from enum import StrEnum


class UnknownFields(StrEnum):
    REFUSE = "refuse"
    """The request is a 400 that names the field."""
    WARN = "warn"
    """The field is ignored, and a header of the response names it."""
