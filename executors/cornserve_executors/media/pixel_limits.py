"""The limits on the number of pixels to which the processors of Qwen's models resize media."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cornserve_executors.media.errors import UnsupportedOptionError
from cornserve_tasklib.encoder_families import MEDIA_OPTIONS
from cornserve_tasklib.media import Media

RESIZED_TYPES: Final = frozenset(kind for kind, options in MEDIA_OPTIONS.items() if "max_pixels" in options)
"""transformers' types of the models whose processors have these limits."""


def refuse_pixel_limits(media: Media) -> None:
    """Raises `UnsupportedOptionError` if the medium has such limits, for models without them."""
    for name in media.options.pixels:
        raise UnsupportedOptionError(f"mm_processor_kwargs.{name}: the model does not have this option: remove it")


def limited_size(size: Mapping[str, int], media: Media) -> dict[str, int]:
    """Returns the size of a processor with the limits of a medium.

    Raises `UnsupportedOptionError` for limits above the model's own, for which no memory is reserved.
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
