from __future__ import annotations

from typing import Any, Literal, Self

import pytest
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, field_validator, model_validator

from cornserve.validation_errors import (
    MAX_VALUE_CHARACTERS,
    describe_all,
    describe_error,
    further_fields,
    locate_error,
)


class Part(BaseModel):
    text: str


class Settings(BaseModel):
    model_config = ConfigDict(extra="forbid")

    replicas: int = Field(default=1, le=64)
    name: str = Field(default="a", pattern="^[a-z]+$")
    part: Part | None = None
    parts: dict[str, int] = Field(default={"a": 1}, min_length=1)
    store: Literal[False] = False

    @field_validator("replicas")
    @classmethod
    def _check(cls, replicas: int) -> int:
        if replicas == 13:
            raise ValueError("13 replicas are not allowed: use 12")
        return replicas


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"replicas": 99}, "must be less than or equal to 64, not 99"),
        ({"replicas": "x"}, "must be a valid integer, not 'x'"),
        ({"replicas": 1.5}, "must be a valid integer, not 1.5"),
        ({"replicas": None}, "must be a valid integer, not null"),
        ({"replicas": [1]}, "must be a valid integer"),
        ({"replicas": 13}, "13 replicas are not allowed: use 12"),
        ({"name": "A"}, "must match pattern '^[a-z]+$', not 'A'"),
        ({"part": {}}, "is required: add it"),
        ({"repilcas": 1}, "is not a known field: remove it or correct its name"),
        ({"part": 1}, "must be an object, not 1"),
        ({"part": "A" * 81}, "must be an object, not a text of 81 characters"),
        ({"parts": {}}, "must have at least 1 item, not 0"),
        ({"store": True}, "must be false, not true"),
    ],
)
def test_an_error_contains_the_problem_and_the_value(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Settings.model_validate(fields)
    assert describe_error(caught.value.errors()[0]) == message


def test_a_long_value_is_cut() -> None:
    with pytest.raises(ValidationError) as caught:
        Settings.model_validate({"name": "A" * 10_000})
    value = describe_error(caught.value.errors()[0]).partition(", not ")[2]
    assert len(value) == MAX_VALUE_CHARACTERS
    assert value.endswith("…")


def test_all_errors_are_described_in_one_line() -> None:
    with pytest.raises(ValidationError) as caught:
        Settings.model_validate({"replicas": 99, "part": {"text": 1}})
    assert describe_all(caught.value.errors()) == (
        "replicas: must be less than or equal to 64, not 99; part.text: must be a valid string, not 1"
    )


class Bounds(BaseModel):
    first: list[int] = []
    message: str = ""

    @model_validator(mode="after")
    def _check(self) -> Self:
        raise ValueError(self.message)


@pytest.mark.parametrize(
    ("message", "location", "described"),
    [
        ("first: 2 needs a second: true", ("first",), "2 needs a second: true"),
        ("first.1: bad", ("first", 1), "bad"),
        ("first[1].a: bad", ("first", 1, "a"), "bad"),
        ("second: missing with a first: add it", ("second",), "missing with a first: add it"),
        ("second: bad", (), "second: bad"),
        ("the first: bad", (), "the first: bad"),
    ],
)
def test_an_error_of_an_object_is_that_of_the_field_that_its_message_names(
    message: str, location: tuple[str | int, ...], described: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(list[Bounds]).validate_python([{"first": [1], "message": message}])

    error = locate_error(caught.value.errors()[0])

    assert (error["loc"], describe_error(error)) == ((0, *location), described)


def test_the_first_further_fields_are_named() -> None:
    with pytest.raises(ValidationError) as caught:
        Settings.model_validate({"replicas": 99, "name": "A", "part": {}, "parts": {}, "store": True})
    first, *further = caught.value.errors()
    assert first["loc"] == ("replicas",)
    assert further_fields(further) == ["name", "part.text", "parts"]
