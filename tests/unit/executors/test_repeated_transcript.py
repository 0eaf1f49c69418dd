"""Transcripts that another executor makes again."""

from __future__ import annotations

import pytest

from cornserve_executors.base import NotRepeatedError
from cornserve_executors.transcription.repeated_transcript import RepeatedTranscript
from cornserve_tasklib.transcription import TranscriptionChunk

DELIVERED = [
    TranscriptionChunk(text="Ripe co"),
    TranscriptionChunk(text="rn.", finish_reason="stop"),
    TranscriptionChunk(text=" Tall"),
]


def test_chunks_may_be_divided_differently() -> None:
    repeated = RepeatedTranscript(DELIVERED)

    parts = [
        repeated.new_part(TranscriptionChunk(text="Ripe corn.", finish_reason="stop")),
        repeated.new_part(TranscriptionChunk(text=" Ta")),
        repeated.new_part(TranscriptionChunk(text="ll plants.")),
        repeated.new_part(TranscriptionChunk(text="", finish_reason="length")),
    ]

    assert parts == [
        None,
        None,
        TranscriptionChunk(text=" plants."),
        TranscriptionChunk(text="", finish_reason="length"),
    ]
    repeated.check_complete()


def test_another_transcript_is_an_error() -> None:
    with pytest.raises(NotRepeatedError):
        RepeatedTranscript(DELIVERED).new_part(TranscriptionChunk(text="Ripe wheat."))


def test_a_clip_that_goes_on_after_its_delivered_end_is_an_error() -> None:
    with pytest.raises(NotRepeatedError):
        RepeatedTranscript(DELIVERED[:2]).new_part(TranscriptionChunk(text="Ripe corn. And", finish_reason="stop"))


def test_a_shorter_transcript_is_an_error() -> None:
    repeated = RepeatedTranscript(DELIVERED)
    repeated.new_part(TranscriptionChunk(text="Ripe corn.", finish_reason="stop"))

    with pytest.raises(NotRepeatedError):
        repeated.check_complete()
