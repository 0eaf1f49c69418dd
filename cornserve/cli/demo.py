"""`cornserve demo`."""

from __future__ import annotations

import os
import sys
import webbrowser
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cornserve.cli.console import CliError, expanded, print_json, stderr
from cornserve.cli.options import Json, Url

if TYPE_CHECKING:
    from cornserve.client import Client
    from cornserve_demo.sample import Sample

_SHOWN = 4
_EVALUATED = 500
_MIN_ACCURACY = 0.95
_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY")
"""Variables of the environment of a graphical session. Elsewhere, a browser would take over the terminal."""


def demo(
    save: Annotated[
        Path, typer.Option("--save", metavar="DIRECTORY", help="Where to save the images and the audio files.")
    ] = Path("demo"),
    samples: Annotated[
        int | None,
        typer.Option("--samples", min=1, max=10_000, help="Number of samples. By default, 4, or 500 with --evaluate."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, max=1_000_000_000, help="Seed of the samples.")] = 0,
    evaluate: Annotated[
        bool,
        typer.Option("--evaluate", help="Measure the accuracy, and save only the wrong samples. Fails below 95%."),
    ] = False,
    url: Url = None,
    json: Json = False,
) -> None:
    """Deploy tiny models that draw colored shapes, name them, and spell words in beeps.

    The training data of the models do not contain the pairs of shapes and the words.
    """
    _check_pillow()
    from cornserve.client import Client

    directory = expanded(save)
    _create(directory)
    with Client(url) as client:
        _deploy(client)
        if evaluate:
            _evaluate(client, directory, samples or _EVALUATED, seed, json)
        else:
            _show(client, directory, samples or _SHOWN, seed, json)


def _show(client: Client, directory: Path, samples: int, seed: int, json: bool) -> None:
    from cornserve_demo import drawer, speller
    from cornserve_demo.shapes import known_words

    drawn = drawer.draw_images(client, samples, seed)
    spelled = speller.spell_words(client, speller.sample(samples, seed))
    images = {directory / f"{number}.png": image for number, image in enumerate(drawn, 1)}
    words = {directory / f"{word.word}.wav": word for word in spelled}
    _save({**images, **words})
    if json:
        print_json({"images": _to_json(images), "words": _to_json(words)})
        return
    for file, image in images.items():
        typer.echo(f'{file}: drawn from "{image.prompt}", named "{image.answer}"')
    for file, word in words.items():
        typer.echo(f'{file}: spelled "{word.answer}", heard "{word.heard}"')
    typer.echo(f"\nThe models know {known_words()}. Draw one or two of them:")
    typer.echo("""  cornserve invoke demo '{"prompt": "red circle and blue square"}'""")


def _evaluate(client: Client, directory: Path, samples: int, seed: int, json: bool) -> None:
    from cornserve_demo import drawer, reader, speller

    named = reader.name_images(client, reader.sample(samples, seed))
    drawn = drawer.draw_images(client, samples, seed)
    spelled = speller.spell_words(client, speller.sample(samples, seed))
    misnamed = _select_wrong(named, directory, "named-{}.png")
    misdrawn = _select_wrong(drawn, directory, "drawn-{}.png")
    misspelled = _select_wrong(spelled, directory, "spelled-{}.wav")
    _save(misnamed | misdrawn | misspelled)
    accuracies = {"named": _accuracy(named), "drawn": _accuracy(drawn), "spelled": _accuracy(spelled)}
    if json:
        print_json(
            {
                "samples": samples,
                **{f"{verb}_accuracy": accuracy for verb, accuracy in accuracies.items()},
                "misnamed": _to_json(misnamed),
                "misdrawn": _to_json(misdrawn),
                "misspelled": _to_json(misspelled),
            }
        )
    else:
        typer.echo(_summary("images named", named))
        typer.echo(_summary("texts drawn", drawn))
        typer.echo(_summary("words spelled", spelled))
    if min(accuracies.values()) < _MIN_ACCURACY:
        raise CliError(f"an accuracy is below {_MIN_ACCURACY:.0%}: see the files in {directory}")


def _select_wrong(samples: Sequence[Sample], directory: Path, name: str) -> dict[Path, Sample]:
    """Returns the wrong samples by the files to save them in."""
    numbered = enumerate(samples, 1)
    return {directory / name.format(number): sample for number, sample in numbered if not sample.is_correct}


def _to_json(samples: Mapping[Path, Sample]) -> list[dict[str, str]]:
    return [{"file": str(file), **sample.fields} for file, sample in samples.items()]


def _accuracy(samples: Sequence[Sample]) -> float:
    return sum(sample.is_correct for sample in samples) / len(samples)


def _summary(what: str, samples: Sequence[Sample]) -> str:
    correct = sum(sample.is_correct for sample in samples)
    return f"{correct} of {len(samples)} {what} correctly ({_accuracy(samples):.1%})"


def _check_pillow() -> None:
    try:
        import PIL.Image  # noqa: F401
    except ImportError:
        raise CliError("the demo needs Pillow, which is not installed: see docs/getting-started.md") from None


def _create(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CliError(f"cannot create {directory}: {error.strerror}") from error


def _deploy(client: Client) -> None:
    from cornserve_demo import drawer, reader, speller

    def report(line: str) -> None:
        console.print(line, markup=False, style="dim")

    console = stderr()
    client.deploy(reader.MODEL, name=reader.APP, on_progress=report)
    client.deploy(drawer.SOURCE, on_progress=report)
    client.deploy(drawer.MODEL, name=drawer.MODEL_APP, on_progress=report)
    client.deploy(speller.MODEL, name=speller.APP, shares=speller.SHARES, on_progress=report)
    address = f"{client.url}/console/#/demo"
    report(f"The console shows the executors while they work, kills one, and splits the image model: {address}")
    open_in_session(address)


def open_in_session(address: str) -> None:
    """Opens a page in the browser of a graphical session, if the command runs in a terminal of one."""
    if sys.stdout.isatty() and any(os.environ.get(name) for name in _DISPLAYS):
        webbrowser.open(address)


def _save(samples: Mapping[Path, Sample]) -> None:
    for file, sample in samples.items():
        try:
            sample.save(file)
        except OSError as error:
            raise CliError(f"cannot save {file}: {error.strerror}") from error
