"""The arguments of recorded calls as JSON, by which a replay is compared with its recording."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from hashlib import sha256
from pathlib import PurePath
from typing import Any
from uuid import UUID

from pydantic import BaseModel

from cornserve.task.lazy_model import is_lazy
from cornserve.task.output import Output

MAX_CHARACTERS = 1000
"""An argument with longer JSON is compared by its digest."""

NOT_COMPARED = "(not compared)"
"""Stands for a value that has no JSON which is the same in each run."""


def encode_arguments(arguments: Sequence[Any], keywords: Mapping[str, Any]) -> bytes:
    """Returns the arguments as a JSON object. Its fields are "argument 1" etc., and the names of keyword arguments.

    It raises no errors: values that cannot be written as JSON are not compared.
    """
    named = {f"argument {number}": value for number, value in enumerate(arguments, start=1)} | dict(keywords)
    return json.dumps({name: _encoded(value) for name, value in named.items()}, sort_keys=True).encode()


def _encoded(value: Any) -> Any:
    try:
        text = _to_json(value)
    except Exception:  # The value may be of any class, contain itself, or have keys that cannot be sorted.
        return NOT_COMPARED
    return json.loads(text) if len(text) <= MAX_CHARACTERS else _digest(text.encode(), "characters")


def _to_json(value: Any) -> str:
    return json.dumps(value, default=_simplified, sort_keys=True)


def _simplified(value: Any) -> Any:
    """Returns a simpler object for one that JSON does not have. Reads no value for which the code would wait."""
    match value:
        case bytes() | bytearray() | memoryview():
            return _digest(value, "bytes")
        case set() | frozenset():
            return sorted(value, key=_to_json)  # Their order differs between processes.
        case Enum():
            return value.value
        case date() | time() | timedelta() | Decimal() | UUID() | PurePath():
            return str(value)
        case BaseModel() if not (isinstance(value, Output) or is_lazy(value)):
            return vars(value) | (value.model_extra or {})
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return NOT_COMPARED


def _digest(data: bytes | bytearray | memoryview, unit: str) -> str:
    return f"{len(data)} {unit}, SHA-256 {sha256(data).hexdigest()[:16]}"
