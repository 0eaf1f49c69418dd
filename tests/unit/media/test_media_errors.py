"""The reasons of processors that reject a medium are shortened, without the contents of the medium."""

from __future__ import annotations

import time

import pytest

from cornserve_executors.media.errors import MAX_REASON, rejection_reason

SAMPLES = "[" + "0.12 -1.5e-03, " * 5000 + "]"


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("The image is too small", "The image is too small"),
        (f"Unable to process {SAMPLES} as audio", "Unable to process as audio"),
        (f"Unable to process [{SAMPLES}, {SAMPLES}] as audio", "Unable to process as audio"),
        ("Expected the shape [3, 224, 224] and not [1, 1]", "Expected the shape [3, 224, 224] and not [1, 1]"),
        ("The scale [2] exceeds 1.5", "The scale [2] exceeds 1.5"),
        ("", "ValueError"),
    ],
)
def test_arrays_of_floats_are_omitted(message: str, reason: str) -> None:
    assert rejection_reason(ValueError(message)) == reason


def test_the_reason_is_that_of_the_first_error() -> None:
    error = RuntimeError("failed")
    error.__cause__ = ValueError("too small")

    assert rejection_reason(error) == "too small"


@pytest.mark.parametrize("part", ["1.0 ", "[1.0 ", "[", " [.", "]"])
def test_the_reason_of_an_array_without_an_end_is_cut_quickly(part: str) -> None:
    before = time.thread_time()

    assert len(rejection_reason(ValueError("[" + part * 50_000))) <= MAX_REASON

    assert time.thread_time() - before < 0.5
