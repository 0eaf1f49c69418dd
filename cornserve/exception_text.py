"""Texts of exceptions. Code of apps may define their classes, so that a text may fail, be long, or not be encodable."""

from __future__ import annotations

from typing import Final

from cornserve.validation_errors import describe_all, first_problems

MAX_CHARACTERS: Final = 2000
"""The length of a message, by default: a process that has little memory left must be able to send it."""


def exception_text(error: BaseException) -> str:
    """Returns the type and the message of an exception in one line, or only the type of one without a message."""
    message = " ".join(filter(None, map(str.strip, exception_message(error).splitlines())))
    return f"{type(error).__name__}: {message}".removesuffix(": ")


def exception_message(error: BaseException, max_characters: int = MAX_CHARACTERS) -> str:
    """Returns the message of an exception, cut to a number of characters. That of pydantic's errors is one line."""
    try:
        message = _message(error)
    except Exception as failure:
        message = f"(its text raises {type(failure).__name__})"
    return encodable(message, max_characters)


def _message(error: BaseException) -> str:
    from pydantic.errors import PydanticErrorMixin  # the command line imports it only for errors
    from pydantic_core import ValidationError

    if isinstance(error, PydanticErrorMixin):
        return error.message  # without the address of its documentation
    if not isinstance(error, ValidationError):
        return str(error)
    problems = first_problems(error)
    further = error.error_count() - len(problems)
    return f"invalid fields of {error.title}: {describe_all(problems)}{f' (and {further} more)' if further else ''}"


def encodable(text: str, max_characters: int) -> str:
    """Returns the text, cut to a number of characters, without lone surrogates, which UTF-8 cannot encode."""
    cut = text if len(text) <= max_characters else f"{text[:max_characters]}…"
    return cut.encode(errors="replace").decode()
