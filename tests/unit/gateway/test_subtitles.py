"""Transcripts as subtitles."""

from __future__ import annotations

from cornserve.app.response_readers import WholeTranscript
from cornserve.gateway.endpoints.openai import subtitles
from cornserve_tasklib import Usage
from cornserve_tasklib.transcription import TranscriptionSegment

USAGE = Usage(prompt_tokens=1, completion_tokens=1)


def segment(start: float, end: float, text: str) -> TranscriptionSegment:
    return TranscriptionSegment(
        id=0, seek=0, start=start, end=end, text=text, tokens=[], temperature=0, avg_logprob=0, compression_ratio=1
    )


TALK = WholeTranscript(
    " Hello. So be it\n--> and go.",
    "en",
    3725.5,
    [segment(0, 1.5, " Hello."), segment(3723.0004, 3725.4996, " So be it\n--> and go.")],
    [],
    USAGE,
)


def test_each_segment_is_a_numbered_cue_of_subrip() -> None:
    assert subtitles.srt(TALK) == (
        "1\n00:00:00,000 --> 00:00:01,500\nHello.\n\n2\n01:02:03,000 --> 01:02:05,500\nSo be it -> and go.\n"
    )


def test_each_segment_is_a_cue_of_webvtt() -> None:
    assert subtitles.vtt(TALK) == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:01.500\nHello.\n\n01:02:03.000 --> 01:02:05.500\nSo be it -> and go.\n"
    )


def test_an_arrow_of_any_length_is_no_arrow_of_a_cue() -> None:
    arrows = WholeTranscript("a ---> b -----> c -->", "en", 1.0, [], [], USAGE)

    assert subtitles.vtt(arrows) == "WEBVTT\n\n00:00:00.000 --> 00:00:01.000\na -> b -> c ->\n"


def test_a_text_is_no_markup_of_webvtt() -> None:
    text = WholeTranscript("a < b & <i>c</i>", "en", 1.0, [], [], USAGE)

    assert subtitles.vtt(text).endswith("\na &lt; b &amp; &lt;i>c&lt;/i>\n")
    assert subtitles.srt(text).endswith("\na < b & <i>c</i>\n")


def test_silence_has_no_cue() -> None:
    silence = WholeTranscript("", "en", 1.0, [], [], USAGE)

    assert (subtitles.srt(silence), subtitles.vtt(silence)) == ("", "WEBVTT\n")
