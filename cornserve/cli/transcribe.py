"""`cornserve transcribe`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cornserve.cli.console import expanded, print_json, print_model_text
from cornserve.cli.gateway import open_client
from cornserve.cli.options import AppName, Json, Url


def transcribe(
    ctx: typer.Context,
    app: AppName,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Audio file: WAV, MP3, FLAC, Ogg, M4A or WebM.")],
    language: Annotated[
        str | None,
        typer.Option("--language", metavar="CODE", help="Language of the speech, such as en. By default, detected."),
    ] = None,
    prompt: Annotated[
        str | None, typer.Option("--prompt", help="Text that precedes the transcript, for its style and spelling.")
    ] = None,
    translate: Annotated[bool, typer.Option("--translate", help="Translate to English.")] = False,
    segments: Annotated[bool, typer.Option("--segments", help="Print segments with their times in seconds.")] = False,
    words: Annotated[
        bool, typer.Option("--words", help="Print words with their times in seconds. Only for Whisper.")
    ] = False,
    url: Url = None,
    json: Json = False,
) -> None:
    """Transcribe the speech in an audio file."""
    timed = [name for name, is_wanted in (("segment", segments), ("word", words)) if is_wanted]
    given = {"language": language, "prompt": prompt}
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if timed:
        options["response_format"] = "verbose_json"
    if words:
        options["timestamp_granularities[]"] = timed
    with open_client(ctx, url) as client:
        response = client.transcribe(app, expanded(file), translate=translate, **options)
    if json:
        print_json(response)
    elif timed:
        for segment in response["segments"] or ():
            print_model_text(_timed(segment, segment["text"].strip()))
        for word in response.get("words") or ():
            print_model_text(_timed(word, word["word"]))
    else:
        print_model_text(response["text"].strip())


def _timed(part: dict[str, Any], text: str) -> str:
    return f"{part['start']:8.2f} {part['end']:8.2f}  {text}"
