"""The options of media, by vLLM's names: `--media-io-kwargs` and `--mm-processor-kwargs`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from cornserve.cli.console import CliError

if TYPE_CHECKING:
    from pydantic import BaseModel

    from cornserve_tasklib.media_options import MediaLoading, MediaOptions, MediaProcessing

Kind = TypeVar("Kind", bound="BaseModel")

MediaIoKwargs = Annotated[
    str | None,
    typer.Option(
        "--media-io-kwargs",
        metavar="JSON",
        help='Frames of videos, as in vLLM: --media-io-kwargs \'{"video": {"fps": 1, "max_frames": 64}}\'.',
    ),
]

MmProcessorKwargs = Annotated[
    str | None,
    typer.Option(
        "--mm-processor-kwargs",
        metavar="JSON",
        help="Sizes of images and frames, as in vLLM: --mm-processor-kwargs '{\"max_pixels\": 200704}'.",
    ),
]


def default_media_options(loading: str | None, processing: str | None) -> MediaOptions | None:
    """Returns the options of an app, or None if none is given. Raises `CliError`."""
    if loading is None and processing is None:
        return None
    from cornserve_tasklib.media_options import MediaOptions

    frames, sizes = _arguments(loading, processing)
    if sizes is not None and sizes.use_audio_in_video:
        raise CliError("--mm-processor-kwargs: use_audio_in_video is an option of requests: remove it")
    options = MediaOptions.of_arguments(frames, sizes)
    return options if options.given else None


def media_fields(loading: str | None, processing: str | None) -> dict[str, Any]:
    """Returns the fields of a request. Raises `CliError`."""
    if loading is None and processing is None:
        return {}
    frames, sizes = _arguments(loading, processing)
    given = {"media_io_kwargs": frames, "mm_processor_kwargs": sizes}
    return {name: options.model_dump(exclude_unset=True) for name, options in given.items() if options is not None}


def _arguments(loading: str | None, processing: str | None) -> tuple[MediaLoading | None, MediaProcessing | None]:
    from cornserve_tasklib.media_options import MediaLoading, MediaProcessing

    return (
        None if loading is None else _parsed("--media-io-kwargs", MediaLoading, loading),
        None if processing is None else _parsed("--mm-processor-kwargs", MediaProcessing, processing),
    )


def _parsed(option: str, kind: type[Kind], text: str) -> Kind:
    from pydantic import ValidationError
    from pydantic_core import from_json

    from cornserve.validation_errors import describe_all

    try:
        return kind.model_validate(from_json(text.encode(errors="surrogateescape")))
    except ValidationError as error:
        raise CliError(f"{option}: {describe_all(error.errors())}") from None
    except ValueError as error:
        raise CliError(f"{option}: not valid JSON: {error}") from None
