"""The families of models whose encoders can run in separate executors, from all installed packages."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Final

from cornserve_tasklib.media import MODALITIES, Modality

ENCODER_FAMILIES: Final[dict[Modality, str]] = {
    "image": "cornserve.encoder_families",
    "audio": "cornserve.audio_encoder_families",
    "video": "cornserve.video_encoder_families",
}
"""The entry point groups in which packages register families, under transformers' name of the model type."""


def encoder_families(modality: Modality) -> list[str]:
    """Returns the model types of all families of a modality, sorted. Imports none of them."""
    return sorted(entry_points(group=ENCODER_FAMILIES[modality]).names)


def encoder_modalities(model_type: object) -> tuple[Modality, ...]:
    """Returns the modalities of a model type for which there is an encoder family."""
    return tuple(modality for modality in MODALITIES if model_type in encoder_families(modality))
