"""`cornserve demo`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cornserve.cli.console import CliError, print_json, stderr
from cornserve.cli.options import Json, Url

if TYPE_CHECKING:
    import PIL.Image

    from cornserve.client import Client
    from cornserve_demo.drawer import DrawnImage
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
        typer.Option("--evaluate", help="Measure the accuracy, and save only the wrong images. Fails below 95%."),
    ] = False,
    url: Url = None,
    json: Json = False,
) -> None:
    """Deploy tiny models that draw colored shapes and name them, and show their images.

    The texts name pairs of shapes that the training data of the models do not contain.
    """
    _check_pillow()
    from cornserve.client import Client

    directory = save.expanduser()
    _create(directory)
    with Client(url) as client:
        _deploy(client)
        if evaluate:
            _evaluate(client, directory, samples or _EVALUATED, seed, json)
        else:
            _show(client, directory, samples or _SHOWN, seed, json)


def _show(client: Client, directory: Path, samples: int, seed: int, json: bool) -> None:
    from cornserve_demo.drawer import draw_images

    files = {directory / f"{number}.png": drawn for number, drawn in enumerate(draw_images(client, samples, seed), 1)}
    _write({file: drawn.image for file, drawn in files.items()})
    if json:
        print_json({"images": [_drawn(file, drawn) for file, drawn in files.items()]})
        return
    for file, drawn in files.items():
        typer.echo(f'{file}: drawn from "{drawn.prompt}", named "{drawn.answer}"')


def _evaluate(client: Client, directory: Path, samples: int, seed: int, json: bool) -> None:
    from cornserve_demo.drawer import draw_images
    from cornserve_demo.reader import name_images, sample

    named = name_images(client, sample(samples, seed))
    drawn = draw_images(client, samples, seed)
    misnamed = {directory / f"named-{n}.png": image for n, image in enumerate(named, 1) if not image.is_correct}
    misdrawn = {directory / f"drawn-{n}.png": image for n, image in enumerate(drawn, 1) if not image.is_correct}
    _write({file: image.image for file, image in (misnamed | misdrawn).items()})
    if json:
        print_json(
            {
                "samples": samples,
                "named_accuracy": _accuracy(named),
                "drawn_accuracy": _accuracy(drawn),
                "misnamed": [_named(file, image) for file, image in misnamed.items()],
                "misdrawn": [_drawn(file, image) for file, image in misdrawn.items()],
            }
        )
    else:
        typer.echo(_summary("images named", named))
        typer.echo(_summary("texts drawn", drawn))
    if min(_accuracy(named), _accuracy(drawn)) < _MIN_ACCURACY:
        raise CliError(f"an accuracy is below {_MIN_ACCURACY:.0%}: see the images in {directory}")


def _accuracy(images: Sequence[NamedImage | DrawnImage]) -> float:
    return sum(image.is_correct for image in images) / len(images)


def _summary(what: str, images: Sequence[NamedImage | DrawnImage]) -> str:
    correct = sum(image.is_correct for image in images)
    return f"{correct} of {len(images)} {what} correctly ({_accuracy(images):.1%})"


def _named(file: Path, image: NamedImage) -> dict[str, str]:
    return {"file": str(file), "shown": image.shown, "answer": image.answer}


def _drawn(file: Path, image: DrawnImage) -> dict[str, str]:
    return {"file": str(file), "prompt": image.prompt, "answer": image.answer}


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
    from cornserve_demo import drawer, reader

    console = stderr()
    client.deploy(reader.MODEL, name=reader.APP, on_progress=lambda line: console.print(line, style="dim"))
    client.deploy(drawer.SOURCE, on_progress=lambda line: console.print(line, style="dim"))


def _write(files: Mapping[Path, PIL.Image.Image]) -> None:
    for file, image in files.items():
        try:
            image.save(file)
        except OSError as error:
            raise CliError(f"cannot save {file}: {error.strerror}") from error
