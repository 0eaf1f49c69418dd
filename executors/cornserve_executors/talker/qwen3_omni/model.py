"""The parts of a Qwen3-Omni that speak."""

from __future__ import annotations

from typing import Any, Self

import torch
from transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe import Qwen3OmniMoeTalkerForConditionalGeneration

from cornserve_executors.base import InvalidRequestError
from cornserve_executors.talker.checkpoint import SpeechCheckpoint
from cornserve_executors.talker.prompt import TalkerPrompt, ThinkerPrompt
from cornserve_executors.talker.qwen3_omni.prompt import TalkerPrompts
from cornserve_executors.talker.qwen3_omni.step import Qwen3OmniStep
from cornserve_executors.talker.spoken_text import SpokenText
from cornserve_executors.talker.talker_model import TalkerModel
from cornserve_executors.talker.vocoder import Vocoder
from cornserve_tasklib.model_settings import ModelSettings
from cornserve_tasklib.talker import TalkerRequest


class Qwen3OmniSpeech(TalkerModel):
    """Reads the tokens of texts, and the hidden states of media."""

    prompt_name = "the messages of the user"

    def __init__(
        self, config: Any, tokenizer: Any, talker: Any, embeddings: torch.Tensor, vocoder: Vocoder[Any]
    ) -> None:
        """Embeds the tokens that all prompts contain.

        Args:
            talker: transformers' `Qwen3OmniMoeTalkerForConditionalGeneration`.
        """
        self._config = config
        self._talker = talker
        # transformers' positions of audio read it from here, but only the configuration of the thinker has it.
        self._talker.config.audio_config = config.thinker_config.audio_config
        self._voice_codes: dict[str, int] = config.talker_config.speaker_id
        super().__init__(tokenizer, embeddings, [*self._voice_codes], vocoder)
        with torch.inference_mode():
            self._prompts = TalkerPrompts(config, tokenizer, talker, embeddings)

    @classmethod
    def load(
        cls,
        config: Any,
        tokenizer: Any,
        checkpoint: SpeechCheckpoint,
        device: str,
        dtype: torch.dtype,
        vocoder: Vocoder[Any],
    ) -> Self:
        talker = Qwen3OmniMoeTalkerForConditionalGeneration._from_config(config.talker_config)
        talker = checkpoint.fill(talker, "talker.", device, dtype)
        return cls(config, tokenizer, talker, checkpoint.embeddings(device, dtype), vocoder)

    @staticmethod
    def voice_names(config: Any, settings: ModelSettings) -> list[str]:
        return [*config.talker_config.speaker_id]

    @property
    def end_token(self) -> int:
        token: int = self._config.im_end_token_id
        return token

    def check(self, request: TalkerRequest) -> None:
        if request.states is not None:
            raise InvalidRequestError(
                "states: the talker of a Qwen3-Omni reads tokens: send them, and user_messages or prompt"
            )

    def prompt(
        self, request: TalkerRequest, text: SpokenText, prompt: ThinkerPrompt | None, voice: str
    ) -> TalkerPrompt:
        first, code = text.tokens[0], self._voice_codes[voice]
        if prompt is not None:
            return self._prompts.of_media(prompt, first, code)
        return self._prompts.of_texts(request.user_messages or (), first, code)

    def step(self, slots: int, length: int, *, enforce_eager: bool) -> Qwen3OmniStep:
        return Qwen3OmniStep(self._talker, self._prompts, slots, length, enforce_eager=enforce_eager)
