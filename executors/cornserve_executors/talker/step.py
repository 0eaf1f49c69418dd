"""Generates the frames of several speeches together, one at a time.

A frame has a code for each code group. The talker generates the first. Speeches join and leave the batch at any step,
because each has a slot of its own in the talker's cache. A speech whose next row has not arrived keeps its slot, and
sits the step out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from cornserve_executors.talker.graphs import GraphedFunction
from cornserve_executors.talker.sampling import Sampling, draw_noise, penalize, sample
from cornserve_executors.talker.slot_cache import SlotCache
from cornserve_executors.talker.speech_state import SpeechState

REPETITION_PENALTY = 1.05


@dataclass(frozen=True, slots=True)
class CodeRules:
    """The rules by which a talker samples the first code of a frame."""

    vocabulary: int
    ends: frozenset[int]
    """The codes that end a speech."""
    suppressed: frozenset[int]
    """Codes that are not generated."""
    sampling: Sampling
    penalized: frozenset[int] = field(default_factory=frozenset)
    """Codes to which the repetition penalty applies from the start."""


class TalkerStep(ABC):
    """A talker with a cache."""

    def __init__(self, talker: Any, cache: SlotCache, rules: CodeRules, groups: int, *, enforce_eager: bool) -> None:
        """Allocates the memory for one speech in each slot of the cache.

        Args:
            talker: transformers' talker.
            groups: the codes of a frame.
            enforce_eager: see `TalkerOptions`.
        """
        self._talker = talker
        self._cache = cache
        self._rules = rules
        self._groups = groups
        self._slots: dict[SpeechState, int] = {}
        self._is_used = torch.zeros(cache.slots, rules.vocabulary, dtype=torch.bool, device=cache.device)
        self._is_suppressed = torch.zeros(rules.vocabulary, dtype=torch.bool, device=cache.device)
        self._is_suppressed[sorted(rules.suppressed)] = True
        self._decode = GraphedFunction(self._run_layers, enforce_eager=enforce_eager)

    @property
    def captured_graphs(self) -> int:
        """The number of captured CUDA graphs."""
        return self._decode.captured

    def run(self, speeches: Sequence[SpeechState]) -> None:
        """Generates the next frame of each speech whose next row has arrived. The slots of other speeches become
        free when a new one needs a slot.

        If this raises, the speeches can be run again.
        """
        self._assign_slots(speeches)
        for speech in speeches:
            if not speech.has_started:
                self._forward([speech], speech.prompt.rows[None], speech.prompt.positions[:, None])
            self._add_rows(speech)
        speaking = [speech for speech in speeches if speech.has_row and not speech.is_done]
        if speaking:
            self._add_frames(speaking)

    @abstractmethod
    def _embed(self, speech: SpeechState, start: int) -> Sequence[torch.Tensor]:
        """Returns the rows of the tokens of a text from an index, each of the shape [width]."""

    @property
    @abstractmethod
    def _end(self) -> torch.Tensor:
        """The row after a text, of the shape [width]."""

    @property
    @abstractmethod
    def _padding(self) -> torch.Tensor:
        """The row of each step after the end of a text, of the shape [width]."""

    @abstractmethod
    def _complete_frames(self, speeches: Sequence[SpeechState]) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the codes of the current frames, [rows, groups], and their summed embeddings, [rows, 1, width]."""

    def _project(self, inputs: torch.Tensor) -> torch.Tensor:
        """Returns the inputs of the talker's layers, of the shape [rows, tokens, width]."""
        return inputs

    def _assign_slots(self, speeches: Sequence[SpeechState]) -> None:
        """Gives slots to new speeches, and then takes those of speeches that are not among the given ones."""
        new = [speech for speech in speeches if speech not in self._slots]
        if not new:
            return
        self._slots = {speech: self._slots[speech] for speech in speeches if speech in self._slots}
        free = sorted(set(range(self._cache.slots)) - set(self._slots.values()))
        for speech, slot in zip(new, free, strict=False):
            self._slots[speech] = slot
            self._is_used[slot] = False
            self._is_used[slot, sorted(self._rules.penalized)] = True

    def _add_rows(self, speech: SpeechState) -> None:
        """Embeds the tokens that have arrived since the last step."""
        speech.has_all_rows = speech.text.is_complete  # Before the tokens, because another thread adds them.
        speech.rows.extend(self._embed(speech, 1 + len(speech.rows)))

    def _next_row(self, speech: SpeechState) -> torch.Tensor:
        index = len(speech.frames)
        if index < len(speech.rows):
            return speech.rows[index]
        return self._end if index == len(speech.rows) else self._padding

    def _add_frames(self, speeches: Sequence[SpeechState]) -> None:
        frames, embedded = self._complete_frames(speeches)
        rows = torch.stack([self._next_row(speech) for speech in speeches])
        next_positions = [[speech.prompt.offset + speech.length] for speech in speeches]
        positions = torch.tensor(next_positions).to(embedded.device, non_blocking=True).expand(3, -1, -1)
        self._forward(speeches, embedded + rows[:, None], positions)
        # Here, because it waits for the GPU, which would be idle until `_forward` has launched its kernels.
        for speech, frame in zip(speeches, frames.tolist(), strict=True):
            speech.frames.append(frame)

    def _forward(self, speeches: Sequence[SpeechState], inputs: torch.Tensor, positions: torch.Tensor) -> None:
        """Generates the first code of the next frame of each speech.

        Args:
            inputs: the shape is [rows, tokens, width].
            positions: the shape is [3, rows, tokens].
        """
        tokens = inputs.shape[1]
        slots, cache_positions, mask = self._cache.rows(
            [self._slots[speech] for speech in speeches], [speech.length for speech in speeches], tokens
        )
        noise = self._noise(speeches, [len(speech.frames) + speech.has_started for speech in speeches])[:, 0]
        run = self._decode if tokens == 1 else self._run_layers
        hidden, codes = run(inputs, positions, slots, cache_positions, mask, noise, self._temperatures(speeches))
        self._is_used[slots, codes] = True
        for row, (speech, code) in enumerate(zip(speeches, codes.tolist(), strict=True)):
            speech.hidden, speech.code = hidden[row : row + 1], code
            speech.length += tokens
            speech.has_ended = code in self._rules.ends

    def _run_layers(
        self,
        inputs: torch.Tensor,
        positions: torch.Tensor,
        slots: torch.Tensor,
        cache_positions: torch.Tensor,
        mask: torch.Tensor,
        noise: torch.Tensor,
        temperatures: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the talker's outputs for the last tokens, [rows, 1, width], and the next codes, [rows]."""
        self._cache.select(slots, cache_positions, mask)
        hidden = self._talker.model(
            inputs_embeds=self._project(inputs),
            attention_mask=mask,
            position_ids=positions,
            past_key_values=self._cache,
            use_cache=True,
        ).last_hidden_state[:, -1:]
        logits = self._talker.codec_head(hidden[:, 0]).float()
        logits = penalize(logits, self._is_used[slots], REPETITION_PENALTY)
        logits = logits.masked_fill(self._is_suppressed, -torch.inf)
        return hidden, sample(logits, noise, temperatures, self._rules.sampling)

    def _noise(self, speeches: Sequence[SpeechState], frames: Sequence[int]) -> torch.Tensor:
        """Returns the noise of a frame of each speech, of the shape [rows, groups, codes].

        Args:
            frames: the indices of the frames.
        """
        rows = [draw_noise(speech.seed, frame, self._groups) for speech, frame in zip(speeches, frames, strict=True)]
        is_greedy = torch.tensor([speech.temperature == 0 for speech in speeches])
        noise = torch.stack(rows).masked_fill(is_greedy[:, None, None], 0)
        return noise.to(self._cache.device, non_blocking=True)

    def _temperatures(self, speeches: Sequence[SpeechState]) -> torch.Tensor:
        temperatures = torch.tensor([speech.temperature or 1.0 for speech in speeches])
        return temperatures.to(self._cache.device, non_blocking=True)
