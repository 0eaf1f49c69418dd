"""Finds encoder families by modality and model type, in all installed packages."""

from __future__ import annotations

from importlib.metadata import entry_points

from cornserve_executors.base import ExecutorStartError
from cornserve_executors.encoder.families.audio_family import AudioEncoderFamily
from cornserve_executors.encoder.families.family import EncoderFamily
from cornserve_executors.encoder.families.video_family import VideoEncoderFamily
from cornserve_executors.encoder.families.vllm_family import VllmFamily
from cornserve_tasklib.encoder_families import ENCODER_FAMILIES, encoder_families
from cornserve_tasklib.media import Modality

TransformersFamily = EncoderFamily | VideoEncoderFamily | AudioEncoderFamily
AnyFamily = TransformersFamily | VllmFamily


def find_family(model_id: str, model_type: str, modality: Modality) -> type[TransformersFamily]:
    """Returns the family of a model. Raises `ExecutorStartError` if no package has it, or if it cannot be imported."""
    found = [*entry_points(group=ENCODER_FAMILIES[modality], name=model_type)]
    if not found:
        supported = ", ".join(encoder_families(modality))
        raise ExecutorStartError(
            f"unsupported model type {model_type!r} of {model_id}: {modality} encoders exist for {supported}"
        )
    try:
        family: type[TransformersFamily] = found[0].load()
    except Exception as error:
        raise ExecutorStartError(f"cannot load the encoder family {model_type!r}: {found[0].value}: {error}") from error
    return family
