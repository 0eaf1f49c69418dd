"""`cornserve demo`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cornserve.cli.console import CliError, print_json, stderr
from cornserve.cli.options import Json, Url

if TYPE_CHECKING:
    from cornserve.client import Client
    from cornserve_demo.reader import NamedImage

_SHOWN = 4
_EVALUATED = 500
_MIN_ACCURACY = 0.95


def demo(
    save: Annotated[Path, typer.Option("--save", metavar="DIRECTORY", help="Where to save the images.")] = Path("demo"),
    samples: Annotated[
        int | None,
        typer.Option("--samples", min=1, max=10_000, help="Number of images. By default, 4, or 500 with --evaluate."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the images.")] = 0,
    evaluate: Annotated[
        bool,
        typer.Option(
            "--evaluate", help="Measure the accuracy, and save only the images that are named wrongly. Fails below 95%."
        ),
    ] = False,
    url: Url = None,
    json: Json = False,
) -> None:
    """Deploy a tiny model that names colored shapes, and show its answers.

    The images show pairs of shapes that the training data of the model do not contain.
    """
    _check_pillow()
    from cornserve.client import Client
    from cornserve_demo.reader import name_images, sample

    directory = save.expanduser()
    _create(directory)
    count = samples or (_EVALUATED if evaluate else _SHOWN)
    with Client(url) as client:
        _deploy(client)
        named = name_images(client, sample(count, seed))
    files = {directory / f"{number}.png": image for number, image in enumerate(named, start=1)}
    if evaluate:
        files = {file: image for file, image in files.items() if not image.is_correct}
    _write(files)
    accuracy = sum(image.is_correct for image in named) / count
    if json:
        print_json({"images": [_described(*saved) for saved in files.items()], "samples": count, "accuracy": accuracy})
    else:
        for file, image in files.items():
            typer.echo(f"{file}: {image.answer}" + ("" if image.is_correct else f" (shows {image.shown})"))
        typer.echo(f"{accuracy * count:.0f} of {count} images named correctly ({accuracy:.1%})")
    if evaluate and accuracy < _MIN_ACCURACY:
        raise CliError(f"the accuracy is below {_MIN_ACCURACY:.0%}")


def _described(file: Path, image: NamedImage) -> dict[str, object]:
    return {"file": str(file), "shown": image.shown, "answer": image.answer, "correct": image.is_correct}


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
    from cornserve_demo.reader import APP, MODEL

    console = stderr()
    client.deploy(MODEL, name=APP, on_progress=lambda line: console.print(line, style="dim"))


def _write(files: dict[Path, NamedImage]) -> None:
    for file, image in files.items():
        try:
            image.image.save(file)
        except OSError as error:
            raise CliError(f"cannot save {file}: {error.strerror}") from error
