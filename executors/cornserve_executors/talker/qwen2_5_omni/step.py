"""The talker of Qwen2.5-Omni, whose frames have a single code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from cornserve_executors.talker.sampling import Sampling
from cornserve_executors.talker.slot_cache import SlotCache
from cornserve_executors.talker.speech_state import SpeechState
from cornserve_executors.talker.step import CodeRules, TalkerStep


class Qwen25OmniStep(TalkerStep):
    """Reads the embedding and the hidden state of one token of the text in each step.

    Args:
        talker: transformers' `Qwen2_5OmniTalkerForConditionalGeneration`.
        embeddings: the thinker's embeddings of tokens, of the shape [tokens, width].
        codes: the number of codes that the vocoder can decode. The talker's vocabulary is larger.
        slots, length, enforce_eager: see `TalkerModel.step`.
    """

    def __init__(
        self, talker: Any, embeddings: torch.Tensor, codes: int, slots: int, length: int, *, enforce_eager: bool
    ) -> None:
        vocabulary: int = talker.config.vocab_size
        ends = frozenset({talker.codec_pad_token, talker.codec_eos_token})
        rules = CodeRules(
            vocabulary=vocabulary,
            ends=ends,
            suppressed=frozenset({talker.codec_bos_token, *range(codes, vocabulary)}) - ends,
            sampling=Sampling(top_k=40, top_p=0.8),
            penalized=frozenset({talker.codec_mask_token, talker.codec_pad_token, talker.codec_bos_token}),
        )
        cache = SlotCache(talker.config, slots, length, like=embeddings)
        super().__init__(talker, cache, rules, groups=1, enforce_eager=enforce_eager)
        self._embeddings = embeddings

    def _embed(self, speech: SpeechState, start: int) -> Sequence[torch.Tensor]:
        tokens = speech.text.tokens[start:]
        states = speech.text.states[start : start + len(tokens)]
        return [
            self._embeddings[token] + state.to(self._embeddings) for token, state in zip(tokens, states, strict=True)
        ]

    @property
    def _end(self) -> torch.Tensor:
        return self._embeddings[self._talker.text_eos_token]

    @property
    def _padding(self) -> torch.Tensor:
        return self._embeddings[self._talker.text_pad_token]

    def _complete_frames(self, speeches: Sequence[SpeechState]) -> tuple[torch.Tensor, torch.Tensor]:
        codes = torch.tensor([[speech.code] for speech in speeches], device=self._embeddings.device)
        return codes, self._talker.get_input_embeddings()(codes)

    def _project(self, inputs: torch.Tensor) -> torch.Tensor:
        projected: torch.Tensor = self._talker.thinker_to_talker_proj(inputs)
        return projected
