"""Loads the parts of an Omni model that speak."""

from __future__ import annotations

from transformers import AutoConfig, AutoTokenizer

from cornserve_executors.base import ExecutorStartError
from cornserve_executors.talker.checkpoint import SpeechCheckpoint, select_dtype
from cornserve_executors.talker.qwen2_5_omni.model import Qwen25OmniSpeech
from cornserve_executors.talker.qwen3_omni.model import Qwen3OmniSpeech
from cornserve_executors.talker.talker_model import TalkerModel
from cornserve_tasklib.talker import TalkerTask

_MODELS: dict[str, type[Qwen25OmniSpeech | Qwen3OmniSpeech]] = {
    "qwen2_5_omni": Qwen25OmniSpeech,
    "qwen3_omni_moe": Qwen3OmniSpeech,
}


def load_talker_model(settings: TalkerTask, device: str) -> TalkerModel:
    """Raises `ExecutorStartError` if the model is incomplete, or does not speak."""
    model_id, revision = settings.model_id, settings.revision
    try:
        config = AutoConfig.from_pretrained(model_id, revision=revision)
        model = _MODELS.get(config.model_type)
        if model is None or not config.enable_audio_output:
            raise ExecutorStartError(f"{model_id} cannot speak: use a Qwen2.5-Omni or a Qwen3-Omni with a talker")
        tokenizer = AutoTokenizer.from_pretrained(model_id, revision=revision)
        checkpoint = SpeechCheckpoint(settings)
    except (OSError, ValueError) as error:
        raise ExecutorStartError(f"{model_id} cannot be loaded: {str(error).partition(chr(10))[0]}") from error
    return model(config, tokenizer, checkpoint, device, select_dtype(settings.options.dtype, device))
