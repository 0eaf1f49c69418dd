"""Spoken responses of `cornserve chat`."""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from cornserve.cli.audio_format import check_audio_file, format_of, replaced_file
from cornserve.cli.console import print_json, print_model_text, stderr

if TYPE_CHECKING:
    from cornserve.client import Client


class ChatSpeech:
    """Asks for a spoken response, and saves its speech.

    Args:
        voice: a voice of the model.
    """

    def __init__(self, voice: str, file: Path) -> None:
        check_audio_file(file)
        format = format_of(file)
        self._file = file
        self._options: dict[str, Any] = {
            "modalities": ["text", "audio"],
            "audio": {"voice": voice, "format": "pcm16" if format == "pcm" else format},
        }

    def answer(self, client: Client, app: str, messages: list[Any], options: dict[str, Any], *, as_json: bool) -> None:
        """Prints the text of the response, and saves the speech."""
        with stderr().status("speaking"):
            completion = client.complete(app, messages, **options, **self._options)
        audio = completion["choices"][0]["message"]["audio"]
        speech = b64decode(audio.pop("data"))
        if as_json:
            self._save(speech)
            print_json(completion | {"file": str(self._file)})
        else:
            print_model_text(audio["transcript"])
            self._save(speech)
            typer.echo(str(self._file))

    def _save(self, speech: bytes) -> None:
        """Writes the file, which replaces an existing one at the end."""
        with replaced_file(self._file) as partial:
            partial.write_bytes(speech)
