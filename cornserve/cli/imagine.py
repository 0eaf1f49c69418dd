"""`cornserve imagine`."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cornserve.cli.console import CliError, check_file, expanded, print_json, stderr, write_file
from cornserve.cli.gateway import open_client
from cornserve.cli.options import AppName, Json, Url
from cornserve.cli.terminal_image import EncodeImage, show_images, terminal_encoder

if TYPE_CHECKING:
    from rich.progress import Progress

_FORMATS = {".png": "png", ".jpg": "jpeg", ".jpeg": "jpeg", ".webp": "webp"}


def imagine(
    ctx: typer.Context,
    app: AppName,
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="Content of the images.")],
    image: Annotated[
        Path | None,
        typer.Option("--image", metavar="FILE", help="Image to change by the prompt, for apps that edit images."),
    ] = None,
    save: Annotated[
        Path,
        typer.Option(
            "--save",
            metavar="FILE",
            help="Image file: .png, .jpg or .webp. Several images get numbers: image-1.png, image-2.png, …",
        ),
    ] = Path("image.png"),
    size: Annotated[
        str | None, typer.Option("--size", metavar="WIDTHxHEIGHT", help="Size in pixels, such as 1024x768.")
    ] = None,
    n: Annotated[int, typer.Option("--n", min=1, max=10, help="Number of images.")] = 1,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="Seed of the first image. By default, random.")
    ] = None,
    steps: Annotated[int | None, typer.Option("--steps", min=1, help="Number of denoising steps.")] = None,
    guidance: Annotated[
        float | None, typer.Option("--guidance", min=1, help="How closely the images follow the prompt. 1: off.")
    ] = None,
    negative_prompt: Annotated[
        str | None, typer.Option("--negative-prompt", help="Content that the images should not have.")
    ] = None,
    previews: Annotated[
        int,
        typer.Option("--previews", min=0, max=3, help="Previews of each image, in a terminal that shows images."),
    ] = 0,
    url: Url = None,
    json: Json = False,
) -> None:
    """Generate images, or edit one with --image. A terminal with kitty's or iTerm2's protocol shows them."""
    files = _files(expanded(save), n)
    given = {
        "n": n,
        "size": size,
        "seed": seed,
        "num_inference_steps": steps,
        "true_cfg_scale": guidance,
        "negative_prompt": negative_prompt,
        "output_format": _FORMATS[save.suffix.lower()],
        "partial_images": previews or None,
    }
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    with open_client(ctx, url) as client:
        if image is None:
            events = client.image_events(app, prompt, progress=True, **options)
        else:
            events = client.edit_events(app, expanded(image), prompt, progress=True, **options)
        images = _receive(events, n, encode := terminal_encoder(save.suffix.lower()))
    for file, result in zip(files, images, strict=True):
        write_file(file, b64decode(result["b64_json"]))
    saved = [{"file": str(file), "seed": result["seed"]} for file, result in zip(files, images, strict=True)]
    if json:
        print_json({"images": saved, "size": images[0]["size"], "usage": images[0]["usage"]})
    else:
        for result in saved:
            typer.echo(f"{result['file']} (seed {result['seed']})")
        show_images(encode, [image["b64_json"] for image in images])


def _files(save: Path, images: int) -> list[Path]:
    """Returns the file of each image. Raises `CliError` before the work if a file cannot be written."""
    if save.suffix.lower() not in _FORMATS:
        raise CliError(f"cannot save {save}: give a file name that ends with {', '.join(_FORMATS)}")
    files = [save] if images == 1 else [save.with_stem(f"{save.stem}-{number}") for number in range(1, images + 1)]
    for file in files:
        check_file(file)
    return files


def _receive(events: Iterable[dict[str, Any]], images: int, encode: EncodeImage | None) -> list[dict[str, Any]]:
    """Returns the events of the completed images, and shows a bar and previews until then."""
    from cornserve.client.responses import COMPLETED_IMAGE

    completed = []
    with _progress_bar() as bar:
        task = bar.add_task("text", total=None)
        for event in events:
            if event["type"] in COMPLETED_IMAGE:
                completed.append(event)
            elif event["type"].endswith(".progress"):
                bar.update(task, description="steps", total=event["steps"] * images, advance=1)
            elif event["type"].endswith(".partial_image"):
                bar.stop()
                show_images(encode, [event["b64_json"]])
                bar.start()
    return completed


@contextmanager
def _progress_bar() -> Iterator[Progress]:
    """Shows a progress bar on a terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = stderr()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        yield bar
