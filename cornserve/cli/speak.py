"""`cornserve speak`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from cornserve.cli.audio_format import FORMATS, check_audio_file, format_of, replaced_file
from cornserve.cli.console import CliError, expanded, print_json, stderr
from cornserve.cli.gateway import open_client
from cornserve.cli.options import AppName, Json, Url

_NAMES = tuple(dict.fromkeys(FORMATS.values()))
_STDOUT = Path("-")
_WAV_HEADER_BYTES = 44


def speak(
    ctx: typer.Context,
    app: AppName,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The text.")],
    save: Annotated[
        Path,
        typer.Option(
            "--save",
            metavar="FILE",
            help=f"Audio file: {', '.join(FORMATS)}. With -, standard output, such as for a player.",
        ),
    ] = Path("speech.wav"),
    voice: Annotated[str | None, typer.Option("--voice", help="Speaker of the model, such as 3.")] = None,
    speed: Annotated[
        float | None, typer.Option("--speed", min=0.25, max=4, help="Speed: 2 is twice as fast as usual.")
    ] = None,
    format: Annotated[
        str | None,
        typer.Option("--format", help=f"{', '.join(_NAMES)}. By default, by the name of the file."),
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="Seed of the speech. By default, random.")] = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Speak a text."""
    given = {"voice": voice, "speed": speed, "seed": seed, "response_format": _format(save, format)}
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    with open_client(ctx, url) as client:
        parts = client.speak(app, text, **options)
        if save == _STDOUT:
            _play(parts)
            return
        size = _write(expanded(save), parts)
    if json:
        print_json({"file": str(save), "bytes": size, "format": options["response_format"]})
    else:
        typer.echo(str(save))


def _format(save: Path, given: str | None) -> str:
    """Returns the format of the file. Raises `CliError` before the work if it is unknown or cannot be written."""
    if given is not None and given not in _NAMES:
        raise CliError(f"unknown format {given!r}: use {', '.join(_NAMES)}")
    if save == _STDOUT:
        return given or "wav"
    check_audio_file(save)
    return given or format_of(save, otherwise=", or --format")


def _play(parts: Iterable[bytes]) -> None:
    for part in parts:
        sys.stdout.buffer.write(part)
        sys.stdout.buffer.flush()


def _write(file: Path, parts: Iterable[bytes]) -> int:
    """Writes the file, which replaces an existing one at the end. Returns its size."""
    with replaced_file(file) as partial:
        with partial.open("wb") as output, stderr().status("speaking") as status:
            for part in parts:
                output.write(part)
                status.update(f"speaking: {output.tell() // 1000} kB")
        _set_wav_length(partial)
    return file.stat().st_size


def _set_wav_length(file: Path) -> None:
    """Writes the lengths that are unknown in the header of a streamed WAV file."""
    with file.open("r+b") as content:
        header = content.read(_WAV_HEADER_BYTES)
        if header[:4] != b"RIFF" or header[-8:-4] != b"data":
            return
        size = file.stat().st_size
        for position, length in ((4, size - 8), (_WAV_HEADER_BYTES - 4, size - _WAV_HEADER_BYTES)):
            content.seek(position)
            content.write(length.to_bytes(4, "little"))
