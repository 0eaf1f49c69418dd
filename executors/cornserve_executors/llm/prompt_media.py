"""The media of a prompt, which vLLM's processor places."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vllm.inputs.engine import MultiModalInput

from cornserve_executors.vllm.processed_media import ItemCache, ProcessedMedium, apply_processor
from cornserve_tasklib.media import Modality


class MissingMarkerError(ValueError):
    """A prompt lacks the marker of a medium."""


@dataclass(frozen=True, slots=True)
class PromptMedium:
    """A medium of a prompt."""

    identifier: str
    """Identifies the contents. vLLM assumes that media with equal identifiers are equal."""
    processed: ProcessedMedium


def assemble_prompt(processor: Any, tokens: Sequence[int], media: Sequence[PromptMedium]) -> MultiModalInput:
    """Returns the engine's input: replaces the marker of each medium in the tokens of a rendered chat. Blocks.

    Media of one modality are in order. Chat templates may move the media of one modality before another's.

    Raises:
        MissingMarkerError: a marker is missing.
    """
    identifiers: dict[Modality, list[str]] = defaultdict(list)
    for medium in media:
        identifiers[medium.processed.modality].append(medium.identifier)
    known = {medium.identifier: (medium.processed.item, medium.processed.updates) for medium in media}
    nothing = {modality: [None] * len(found) for modality, found in identifiers.items()}
    try:
        return apply_processor(processor, tokens, nothing, identifiers, ItemCache(known), {})
    except (AssertionError, RuntimeError, ValueError) as error:  # An AssertionError if a marker is missing.
        raise MissingMarkerError(str(error)) from error
