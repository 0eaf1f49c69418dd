"""Loads the parts of an Omni model that speak."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from transformers import AutoConfig, AutoTokenizer

from cornserve_executors.base import ExecutorStartError
from cornserve_executors.talker.checkpoint import SpeechCheckpoint, select_dtype
from cornserve_executors.talker.code_chunks import CodeChunks
from cornserve_executors.talker.qwen2_5_omni.model import Qwen25OmniSpeech
from cornserve_executors.talker.qwen2_5_omni.vocoder import Token2Wav
from cornserve_executors.talker.qwen3_omni.model import Qwen3OmniSpeech
from cornserve_executors.talker.qwen3_omni.vocoder import Code2Wav
from cornserve_executors.talker.talker_model import TalkerModel
from cornserve_executors.talker.vocoder import FrameShape, Vocoder
from cornserve_tasklib.model_settings import ModelSettings
from cornserve_tasklib.talker import TalkerTask, VocoderTask


@dataclass(frozen=True, slots=True)
class _Family:
    talker: type[Qwen25OmniSpeech | Qwen3OmniSpeech]
    vocoder: type[Token2Wav] | type[Code2Wav]


_FAMILIES = {
    "qwen2_5_omni": _Family(Qwen25OmniSpeech, Token2Wav),
    "qwen3_omni_moe": _Family(Qwen3OmniSpeech, Code2Wav),
}


def load_talker_model(settings: TalkerTask, device: str) -> TalkerModel:
    """Raises `ExecutorStartError` if the model is incomplete, or does not speak."""
    model_id, revision = settings.model_id, settings.revision
    family, config, checkpoint = _open(settings)
    try:
        tokenizer = AutoTokenizer.from_pretrained(model_id, revision=revision)
    except (OSError, ValueError) as error:
        raise _unloadable(model_id, error) from error
    vocoder: Vocoder[Any]
    if settings.with_vocoder:
        vocoder = family.vocoder.load(config, checkpoint, device, enforce_eager=settings.options.enforce_eager)
    else:
        vocoder = CodeChunks(family.vocoder.frame_shape(config))
    dtype = select_dtype(settings.options.dtype, device)
    return family.talker.load(config, tokenizer, checkpoint, device, dtype, vocoder)


def load_vocoder(settings: VocoderTask, device: str) -> Vocoder[Any]:
    """Raises like `load_talker_model`."""
    family, config, checkpoint = _open(settings)
    return family.vocoder.load(config, checkpoint, device, enforce_eager=settings.options.enforce_eager)


def load_codes_format(settings: ModelSettings) -> tuple[FrameShape, str]:
    """Returns the frames of a model and its default voice. Raises `ExecutorStartError` if it does not speak."""
    family, config = _find_family(settings)
    voices = family.talker.voice_names(config, settings)
    return family.vocoder.frame_shape(config), min(voices)


def _open(settings: ModelSettings) -> tuple[_Family, Any, SpeechCheckpoint]:
    family, config = _find_family(settings)
    try:
        return family, config, SpeechCheckpoint(settings)
    except (OSError, ValueError) as error:
        raise _unloadable(settings.model_id, error) from error


def _find_family(settings: ModelSettings) -> tuple[_Family, Any]:
    try:
        config = AutoConfig.from_pretrained(settings.model_id, revision=settings.revision)
    except (OSError, ValueError) as error:
        raise _unloadable(settings.model_id, error) from error
    family = _FAMILIES.get(config.model_type)
    if family is None or not config.enable_audio_output:
        raise ExecutorStartError(f"{settings.model_id} cannot speak: use a Qwen2.5-Omni or a Qwen3-Omni with a talker")
    return family, config


def _unloadable(model_id: str, error: Exception) -> ExecutorStartError:
    return ExecutorStartError(f"{model_id} cannot be loaded: {str(error).partition(chr(10))[0]}")
