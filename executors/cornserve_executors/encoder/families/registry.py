"""Finds encoder families by modality and model type, in all installed packages."""

from __future__ import annotations

from importlib.metadata import entry_points

from cornserve_executors.base import ExecutorStartError
from cornserve_executors.encoder.families.audio_family import AudioEncoderFamily
from cornserve_executors.encoder.families.family import EncoderFamily
from cornserve_executors.encoder.families.video_family import VideoEncoderFamily
from cornserve_executors.encoder.families.vllm_family import VllmFamily
from cornserve_tasklib.encoder_families import ENCODER_FAMILIES
from cornserve_tasklib.media import Modality

TransformersFamily = EncoderFamily | VideoEncoderFamily | AudioEncoderFamily
AnyFamily = TransformersFamily | VllmFamily


def find_family(model_type: str, modality: Modality) -> type[TransformersFamily]:
    """Returns the family of a known model type. Raises `ExecutorStartError` if it cannot be imported."""
    found, *_ = entry_points(group=ENCODER_FAMILIES[modality], name=model_type)
    try:
        family: type[TransformersFamily] = found.load()
    except Exception as error:
        raise ExecutorStartError(f"cannot load the encoder family {model_type!r}: {found.value}: {error}") from error
    return family
