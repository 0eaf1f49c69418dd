"""Texts of exceptions whose classes an app may have defined."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from cornserve.exception_text import MAX_CHARACTERS, exception_message, exception_text
from cornserve.observe.redaction import redacted_traceback


class FailingText(Exception):
    """An error without a text."""

    __qualname__ = "Failing\ud800Text"

    def __str__(self) -> str:
        raise OSError


class Maize(BaseModel):
    """A model of an app."""

    kernels: int
    name: str


def invalid() -> ValidationError:
    with pytest.raises(ValidationError) as caught:
        Maize.model_validate({"kernels": "many"})
    return caught.value


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("no corn"), "ValueError: no corn"),
        (MemoryError(), "MemoryError"),
        (ValueError("a\ud800b"), "ValueError: a?b"),
        (FailingText(), "FailingText: (its text raises OSError)"),
        (ValueError("first\n  second"), "ValueError: first second"),
        (
            invalid(),
            (
                "ValidationError: invalid fields of Maize: kernels: must be a valid integer, not 'many'; "
                "name: is required: add it"
            ),
        ),
        (ValueError("x" * 10_000), f"ValueError: {'x' * MAX_CHARACTERS}…"),
    ],
)
def test_a_text_has_the_type_and_a_bounded_message_that_can_be_encoded(error: Exception, text: str) -> None:
    assert exception_text(error) == text


def test_only_the_first_of_many_problems_is_described() -> None:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(list[int]).validate_python(["many"] * 10_000)

    text = exception_text(caught.value)
    assert text == "ValidationError: invalid fields of list[int]: 0: must be a valid integer (and 9999 more)"


def test_a_message_is_cut_to_the_given_length() -> None:
    assert exception_message(ValueError("maize"), 3) == "mai…"


def test_a_traceback_of_a_class_with_any_name_can_be_encoded() -> None:
    assert (
        redacted_traceback(FailingText(), shows_messages=True)
        .encode()
        .endswith(b"Failing?Text: (its text raises OSError)")
    )
