"""The parts of a Qwen2.5-Omni that speak."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import torch
from transformers.models.qwen2_5_omni.modeling_qwen2_5_omni import Qwen2_5OmniTalkerForConditionalGeneration

from cornserve_executors.base import InvalidRequestError
from cornserve_executors.talker.checkpoint import SpeechCheckpoint
from cornserve_executors.talker.prompt import TalkerPrompt, ThinkerPrompt, media_positions
from cornserve_executors.talker.qwen2_5_omni.step import Qwen25OmniStep
from cornserve_executors.talker.qwen2_5_omni.voices import Voice, load_voices
from cornserve_executors.talker.spoken_text import SpokenText
from cornserve_executors.talker.talker_model import TalkerModel
from cornserve_executors.talker.vocoder import Vocoder
from cornserve_tasklib.model_settings import ModelSettings
from cornserve_tasklib.talker import TalkerRequest


class Qwen25OmniSpeech(TalkerModel):
    """Reads the thinker's hidden states of the whole chat, and of each token of the response.

    transformers 5.19 leaves out an attention mask of ones, and without a mask its talker adds no codes to the last two
    rows of a prompt, and gives media the positions of text. This class always does both, as in the training.
    """

    prompt_name = "the chat"

    def __init__(
        self,
        config: Any,
        tokenizer: Any,
        talker: Any,
        embeddings: torch.Tensor,
        voices: Mapping[str, Voice],
        vocoder: Vocoder[Any],
    ) -> None:
        """Keeps the loaded parts.

        Args:
            talker: transformers' `Qwen2_5OmniTalkerForConditionalGeneration`.
            voices: by name.
        """
        super().__init__(tokenizer, embeddings, [*voices], vocoder)
        self._talker = talker
        self._codes = config.token2wav_config.dit_config.num_embeds + 1  # transformers adds one to the table.
        self._start_tokens = {name: voice.start_token for name, voice in voices.items()}
        self._media_tokens = {
            getattr(config.thinker_config, f"{medium}_token_index") for medium in ("image", "video", "audio")
        }

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
        talker = Qwen2_5OmniTalkerForConditionalGeneration._from_config(config.talker_config)
        talker = checkpoint.fill(talker, "talker.", device, dtype)
        voices = load_voices(checkpoint.model_id, checkpoint.revision, device)
        return cls(config, tokenizer, talker, checkpoint.embeddings(device, dtype), voices, vocoder)

    @staticmethod
    def voice_names(config: Any, settings: ModelSettings) -> list[str]:
        return [*load_voices(settings.model_id, settings.revision, "cpu")]

    @property
    def end_token(self) -> int:
        token: int = self.tokenizer.eos_token_id
        return token

    def check(self, request: TalkerRequest) -> None:
        if request.states is None:
            raise InvalidRequestError(
                "states: the talker of a Qwen2.5-Omni reads hidden states: set reads_states of the SpeakingChat"
            )

    def prompt(
        self, request: TalkerRequest, text: SpokenText, prompt: ThinkerPrompt | None, voice: str
    ) -> TalkerPrompt:
        assert prompt is not None  # `states` begin with it.
        tokens = prompt.prompt.tokens
        start, first = self._start_tokens[voice], text.tokens[0]
        first_row = self.embed([first]) + text.states[0].to(self.embeddings)
        rows = torch.cat([self._chat(prompt), self.embed([start]), first_row])
        pad, begin = self._talker.codec_pad_token, self._talker.codec_bos_token
        codes = torch.tensor([pad, begin], device=rows.device)
        rows[-2:] += self._talker.get_input_embeddings()(codes)
        positions = media_positions(self._talker, [*tokens, start, first], prompt.prompt, rows.device)
        return TalkerPrompt(rows, positions, int(positions.max()) + 1 - len(rows))

    def _chat(self, prompt: ThinkerPrompt) -> torch.Tensor:
        """Returns rows of the shape [tokens, width]: hidden states, and embeddings except those of media."""
        tokens = prompt.prompt.tokens
        if not tokens:
            return self.embed([])
        is_medium = torch.tensor([token in self._media_tokens for token in tokens], device=self.embeddings.device)
        embedded = self.embed(tokens).masked_fill(is_medium[:, None], 0)
        return embedded + prompt.states.to(self.embeddings)

    def step(self, slots: int, length: int, *, enforce_eager: bool) -> Qwen25OmniStep:
        return Qwen25OmniStep(self._talker, self.embeddings, self._codes, slots, length, enforce_eager=enforce_eager)
