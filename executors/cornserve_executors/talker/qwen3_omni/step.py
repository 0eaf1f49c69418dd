"""The talker of Qwen3-Omni with its code predictor, which generates all codes of a frame but the first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers.cache_utils import DynamicCache

from cornserve_executors.talker.graphs import GraphedFunction
from cornserve_executors.talker.qwen3_omni.prompt import TalkerPrompts
from cornserve_executors.talker.sampling import Sampling, sample
from cornserve_executors.talker.slot_cache import SlotCache
from cornserve_executors.talker.speech_state import SpeechState
from cornserve_executors.talker.step import CodeRules, TalkerStep

TALKER_SAMPLING = Sampling(top_k=50, top_p=1.0)
PREDICTOR_SAMPLING = Sampling(top_k=50, top_p=0.8)
SUPPRESSED_CODES = 1024
"""The last codes of the vocabulary are special. Only the end is generated."""


class Qwen3OmniStep(TalkerStep):
    """Each step runs the code predictor for the current frame, and the talker for the first code of the next one.

    Args:
        talker: transformers' `Qwen3OmniMoeTalkerForConditionalGeneration`.
        slots, length, enforce_eager: see `TalkerModel.step`.
    """

    def __init__(self, talker: Any, prompts: TalkerPrompts, slots: int, length: int, *, enforce_eager: bool) -> None:
        config = talker.config
        vocabulary: int = config.text_config.vocab_size
        end: int = config.codec_eos_token_id
        rules = CodeRules(
            vocabulary=vocabulary,
            ends=frozenset({end}),
            suppressed=frozenset(range(vocabulary - SUPPRESSED_CODES, vocabulary)) - {end},
            sampling=TALKER_SAMPLING,
        )
        cache = SlotCache(config.text_config, slots, length, like=prompts.end)
        super().__init__(talker, cache, rules, config.num_code_groups, enforce_eager=enforce_eager)
        self._prompts = prompts
        self._predict = GraphedFunction(self._run_predictor, enforce_eager=enforce_eager)

    @property
    def captured_graphs(self) -> int:
        return super().captured_graphs + self._predict.captured

    def _embed(self, speech: SpeechState, start: int) -> Sequence[torch.Tensor]:
        # One by one: the rounding of a product depends on its number of rows, and so on how many tokens have arrived.
        return [self._prompts.embed([token])[0] for token in speech.text.tokens[start:]]

    @property
    def _end(self) -> torch.Tensor:
        return self._prompts.end

    @property
    def _padding(self) -> torch.Tensor:
        return self._prompts.padding

    def _complete_frames(self, speeches: Sequence[SpeechState]) -> tuple[torch.Tensor, torch.Tensor]:
        noise = self._noise(speeches, [len(speech.frames) for speech in speeches])
        temperatures = self._temperatures(speeches)
        codes = torch.tensor([speech.code for speech in speeches]).to(noise.device, non_blocking=True)
        hidden = torch.cat([speech.last_hidden for speech in speeches])
        frames, embedded = self._predict(codes, hidden, noise, temperatures)
        return frames, embedded

    def _run_predictor(
        self, first: torch.Tensor, hidden: torch.Tensor, noise: torch.Tensor, temperatures: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Generates the codes of frames after the first ones, [rows], from the talker's outputs, [rows, 1, width]."""
        predictor = self._talker.code_predictor
        codes = [first]
        embedded = self._talker.get_input_embeddings()(first[:, None])
        total, inputs = embedded, torch.cat([hidden, embedded], 1)
        cache = DynamicCache(config=predictor.config)
        for group in range(self._groups - 1):
            # transformers 5.17 makes a mask only while a CUDA graph is captured. torch then selects another kernel,
            # whose rounding differs.
            output = predictor.model(
                inputs_embeds=inputs,
                attention_mask={"full_attention": None},
                past_key_values=cache,
                use_cache=True,
            ).last_hidden_state
            logits = predictor.lm_head[group](output[:, -1])
            codes.append(sample(logits, noise[:, group + 1], temperatures, PREDICTOR_SAMPLING))
            inputs = predictor.get_input_embeddings()[group](codes[-1][:, None])
            total = total + inputs
        return torch.stack(codes, 1), total
