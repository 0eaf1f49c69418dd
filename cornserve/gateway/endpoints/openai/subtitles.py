"""Transcripts as subtitles, in the formats SubRip (`srt`) and WebVTT (`vtt`)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from cornserve.app.response_readers import WholeTranscript


def srt(transcript: WholeTranscript) -> str:
    """Returns numbered cues with times such as 00:00:01,500."""
    cues = [
        f"{number}\n{_time(start, ',')} --> {_time(end, ',')}\n{text}\n"
        for number, (start, end, text) in enumerate(_cues(transcript), 1)
    ]
    return "\n".join(cues)


def vtt(transcript: WholeTranscript) -> str:
    """Returns the header of WebVTT, and cues with times such as 00:00:01.500. Players read `<` and `&` as markup."""
    cues = [
        f"{_time(start, '.')} --> {_time(end, '.')}\n{text.replace('&', '&amp;').replace('<', '&lt;')}\n"
        for start, end, text in _cues(transcript)
    ]
    return "\n".join(["WEBVTT\n", *cues])


def _cues(transcript: WholeTranscript) -> Iterable[tuple[float, float, str]]:
    """Returns start, end and text of each segment. A text without timestamps is one cue."""
    cues = [(segment.start, segment.end, _text(segment.text)) for segment in transcript.segments]
    if not cues and transcript.text.strip():
        cues = [(0.0, transcript.seconds, _text(transcript.text))]
    return cues


def _text(text: str) -> str:
    """Returns the text without what would end the cue or begin another one."""
    return re.sub("-{2,}>", "->", " ".join(text.split()))


def _time(seconds: float, separator: str) -> str:
    minutes, milliseconds = divmod(round(seconds * 1000), 60_000)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02d}:{minutes:02d}:{milliseconds // 1000:02d}{separator}{milliseconds % 1000:03d}"
