"""Generates the frames of several speeches together, one at a time.

A frame has a code for each code group. The talker generates the first, and the code predictor the others. Each step
runs the code predictor for the current frame, and the talker for the first code of the next one. Speeches join and
leave the batch at any step, because each has a slot of its own in the talker's cache. A speech whose next token has not
arrived keeps its slot, and sits the step out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers.cache_utils import DynamicCache

from cornserve_executors.talker.loader import LoadedTalker
from cornserve_executors.talker.prompt import TalkerPrompts
from cornserve_executors.talker.sampling import draw_noise, penalize, sample
from cornserve_executors.talker.slot_cache import SlotCache
from cornserve_executors.talker.speech_state import SpeechState

REPETITION_PENALTY = 1.05
TALKER_TOP_P = 1.0
PREDICTOR_TOP_P = 0.8
SUPPRESSED_CODES = 1024
"""The last codes of the vocabulary are special. Only the end is generated."""


class TalkerStep:
    """The talker and the code predictor, with a cache of `slots` rows of `length` tokens."""

    def __init__(self, model: LoadedTalker, prompts: TalkerPrompts, slots: int, length: int) -> None:
        self._talker = model.talker
        self._prompts = prompts
        self._config: Any = model.config.talker_config
        self._groups: int = self._config.num_code_groups
        self._cache = SlotCache(self._config.text_config, slots, length, model.embeddings)
        self._slots: dict[SpeechState, int] = {}
        vocabulary = self._config.text_config.vocab_size
        self._is_used = torch.zeros(slots, vocabulary, dtype=torch.bool, device=model.embeddings.device)
        self._is_suppressed = torch.arange(vocabulary, device=model.embeddings.device) >= vocabulary - SUPPRESSED_CODES
        self._is_suppressed[self._config.codec_eos_token_id] = False

    def run(self, speeches: Sequence[SpeechState]) -> None:
        """Generates the next frame of each speech whose next token has arrived. The slots of other speeches become
        free when a new one needs a slot.

        If this raises, the speeches can be run again.
        """
        self._assign_slots(speeches)
        for speech in speeches:
            if speech.hidden is None:
                self._forward([speech], speech.prompt.rows[None], speech.prompt.positions[:, None])
            self._embed_text(speech)
        speaking = [speech for speech in speeches if speech.has_row and not speech.is_done]
        if speaking:
            self._add_frames(speaking)

    def _assign_slots(self, speeches: Sequence[SpeechState]) -> None:
        """Gives slots to new speeches, and then takes those of speeches that are not among the given ones."""
        new = [speech for speech in speeches if speech not in self._slots]
        if not new:
            return
        self._slots = {speech: self._slots[speech] for speech in speeches if speech in self._slots}
        free = sorted(set(range(len(self._is_used))) - set(self._slots.values()))
        for speech, slot in zip(new, free, strict=False):
            self._slots[speech] = slot
            self._is_used[slot] = False

    def _embed_text(self, speech: SpeechState) -> None:
        """Embeds the tokens that have arrived since the last step."""
        speech.has_all_rows = speech.text.is_complete  # Before the tokens, because another thread adds them.
        if arrived := speech.text.tokens[1 + len(speech.rows) :]:
            speech.rows.extend(self._prompts.embed(arrived))

    def _next_row(self, speech: SpeechState) -> torch.Tensor:
        index = len(speech.frames)
        if index < len(speech.rows):
            return speech.rows[index]
        return self._prompts.end if index == len(speech.rows) else self._prompts.padding

    def _add_frames(self, speeches: Sequence[SpeechState]) -> None:
        frames, embedded = self._predict_codes(speeches)
        rows = torch.stack([self._next_row(speech) for speech in speeches])
        next_positions = [[speech.prompt.offset + speech.length] for speech in speeches]
        positions = torch.tensor(next_positions, device=embedded.device).expand(3, -1, -1)
        for speech, frame in zip(speeches, frames.tolist(), strict=True):
            speech.frames.append(frame)
        try:
            self._forward(speeches, embedded + rows[:, None], positions)
        except BaseException:
            for speech in speeches:
                speech.frames.pop()
            raise

    def _predict_codes(self, speeches: Sequence[SpeechState]) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the codes of the current frames, [rows, groups], and their summed embeddings, [rows, 1, width]."""
        predictor = self._talker.code_predictor
        noise, temperatures = self._noise(speeches), self._temperatures(speeches)
        codes = [torch.tensor([speech.code for speech in speeches], device=noise.device)]
        embedded = self._talker.get_input_embeddings()(codes[0][:, None])
        total = embedded
        inputs = torch.cat([torch.cat([_hidden(speech) for speech in speeches]), embedded], 1)
        cache = DynamicCache(config=predictor.config)
        for group in range(self._groups - 1):
            output = predictor.model(inputs_embeds=inputs, past_key_values=cache, use_cache=True).last_hidden_state
            logits = predictor.lm_head[group](output[:, -1])
            codes.append(sample(logits, noise[:, group + 1], temperatures, PREDICTOR_TOP_P))
            inputs = predictor.get_input_embeddings()[group](codes[-1][:, None])
            total = total + inputs
        return torch.stack(codes, 1), total

    def _forward(self, speeches: Sequence[SpeechState], inputs: torch.Tensor, positions: torch.Tensor) -> None:
        """Generates the first code of the next frame of each speech.

        Args:
            inputs: the shape is [rows, tokens, width].
            positions: the shape is [3, rows, tokens].
        """
        slots, lengths = [self._slots[speech] for speech in speeches], [speech.length for speech in speeches]
        mask = self._cache.begin(slots, lengths, inputs.shape[1])
        output = self._talker.model(
            inputs_embeds=inputs,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=self._cache,
            use_cache=True,
        ).last_hidden_state[:, -1:]
        logits = penalize(self._talker.codec_head(output[:, 0]).float(), self._is_used[slots], REPETITION_PENALTY)
        logits = logits.masked_fill(self._is_suppressed, -torch.inf)
        codes = sample(logits, self._noise(speeches)[:, 0], self._temperatures(speeches), TALKER_TOP_P)
        self._is_used[slots, codes] = True
        for row, (speech, code) in enumerate(zip(speeches, codes.tolist(), strict=True)):
            speech.hidden, speech.code = output[row : row + 1], code
            speech.length += inputs.shape[1]
            speech.has_ended = code == self._config.codec_eos_token_id

    def _noise(self, speeches: Sequence[SpeechState]) -> torch.Tensor:
        """Returns the noise of the current frames, of the shape [rows, groups, codes]."""
        rows = [draw_noise(speech.seed, len(speech.frames), self._groups) for speech in speeches]
        greedy = [speech.temperature == 0 for speech in speeches]
        return torch.stack(rows).masked_fill(torch.tensor(greedy)[:, None, None], 0).to(self._is_used.device)

    def _temperatures(self, speeches: Sequence[SpeechState]) -> torch.Tensor:
        return torch.tensor([speech.temperature or 1 for speech in speeches], device=self._is_used.device)


def _hidden(speech: SpeechState) -> torch.Tensor:
    assert speech.hidden is not None  # The first forward pass has set it.
    return speech.hidden
