"""Arguments of vLLM's processors: limits on the sizes of media, on pixels for Qwen's models, on tiles for InternVL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from pydantic import BaseModel

from cornserve_executors.media.errors import UnsupportedOptionError
from cornserve_tasklib.encoder_families import MEDIA_OPTIONS
from cornserve_tasklib.media import Media, Modality
from cornserve_tasklib.media_options import PixelOptions, TileOptions

ArgumentsOf = Callable[[Media], dict[str, Any]]
"""Returns the arguments of a model's processor for a medium. Raises `UnsupportedOptionError`."""

RESIZED_TYPES: Final = frozenset(kind for kind, options in MEDIA_OPTIONS.items() if "max_pixels" in options)
"""transformers' types of the models whose processors have limits on pixels."""

TILED_TYPES: Final = frozenset(kind for kind, options in MEDIA_OPTIONS.items() if "max_patches" in options)
"""transformers' types of the models whose processors have limits on tiles."""


def processor_arguments(model_config: Any, info: Any) -> Mapping[Modality, ArgumentsOf]:
    """Returns the arguments of the model's processors for media with options of sizes, by modality."""
    model_type = model_config.hf_config.model_type
    if model_type in RESIZED_TYPES:
        processor = info.get_hf_processor()
        sizes: Mapping[Modality, Any] = {
            "image": processor.image_processor.size,
            "video": processor.video_processor.size,
        }
        return {modality: partial(_size_argument, size) for modality, size in sizes.items()}
    if model_type in TILED_TYPES:
        processor = info.get_hf_processor().image_processor
        return {
            "image": partial(_tile_arguments, processor.min_patches, processor.max_patches),
            "video": _without_tiles,
        }
    return {}


def refuse_other_sizes(media: Media, known: type[BaseModel] | None = None) -> None:
    """Raises `UnsupportedOptionError` if the medium has options of sizes other than the fields of `known`."""
    for name in media.options.sizes:
        if known is None or name not in known.model_fields:
            raise UnsupportedOptionError(f"mm_processor_kwargs.{name}: the model does not have this option: remove it")


def _size_argument(size: Mapping[str, int], media: Media) -> dict[str, Any]:
    """Returns the size of a processor as its argument, if the medium has limits on pixels."""
    refuse_other_sizes(media, PixelOptions)
    return {"size": _limited_size(size, media)} if media.options.pixels else {}


def _limited_size(size: Mapping[str, int], media: Media) -> dict[str, int]:
    """Returns the size of a processor with the limits of a medium.

    Raises `UnsupportedOptionError` for limits above the model's own, because vLLM reserves no memory for them.
    """
    largest = size["longest_edge"]
    for name, pixels in media.options.pixels.items():
        if pixels > largest:
            reason = f"{pixels} is above the model's limit for {media.plural}: give at most {largest}"
            raise UnsupportedOptionError(f"mm_processor_kwargs.{name}: {reason}")
    smallest, limit = media.options.min_pixels, media.options.max_pixels
    return {
        "shortest_edge": size["shortest_edge"] if smallest is None else smallest,
        "longest_edge": largest if limit is None else limit,
    }


def _tile_arguments(smallest: int, largest: int, media: Media) -> dict[str, Any]:
    """Returns the limits on tiles of a medium as arguments of a processor, whose own limits are given.

    Raises `UnsupportedOptionError` for limits beyond the processor's own.
    """
    refuse_other_sizes(media, TileOptions)
    for name, tiles in media.options.tiles.items():
        if not smallest <= tiles <= largest:
            reason = f"{tiles} is not within the model's limits: give {smallest} to {largest}"
            raise UnsupportedOptionError(f"mm_processor_kwargs.{name}: {reason}")
    return dict(media.options.tiles)


def _without_tiles(video: Media) -> dict[str, Any]:
    """Returns no arguments: a frame is one tile, whatever the limits on those of images."""
    refuse_other_sizes(video, TileOptions)
    return {}
