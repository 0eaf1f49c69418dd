"""Removes what was delivered of a transcript that another executor makes again from its start."""

from __future__ import annotations

from collections.abc import Sequence

from cornserve_executors.base import NotRepeatedError
from cornserve_executors.base.repeated_output import strip_delivered
from cornserve_tasklib.transcription import TranscriptionChunk


class RepeatedTranscript:
    """The delivered part of a transcript that has not come again. Chunks may be divided differently than before."""

    def __init__(self, delivered: Sequence[TranscriptionChunk]) -> None:
        self._text = "".join([chunk.text for chunk in delivered])
        self._clips = sum(chunk.finish_reason is not None for chunk in delivered)
        """The number of clips whose end was delivered."""

    def new_part(self, chunk: TranscriptionChunk) -> TranscriptionChunk | None:
        """Returns what was not delivered of the next chunk, or None. Raises `NotRepeatedError` if it differs."""
        text, self._text = strip_delivered(chunk.text, self._text)
        if text and self._clips:
            raise NotRepeatedError
        reason = chunk.finish_reason
        if reason is not None and self._clips:
            self._clips -= 1
            reason = None
        return TranscriptionChunk(text=text, finish_reason=reason) if text or reason is not None else None

    def check_complete(self) -> None:
        """Raises `NotRepeatedError` if the transcript ended before all that was delivered."""
        if self._text or self._clips:
            raise NotRepeatedError
