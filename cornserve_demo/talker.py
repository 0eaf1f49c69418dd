"""Trains the talker of the speaking demo model: the codes of the frame that speaks each character."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence

from cornserve_demo.optimization import Optimization
from cornserve_demo.spelling import code_of, random_word, spell
from cornserve_demo.thinker import prompt_tokens, response_tokens

BATCH = 32
Progress = Callable[[str], None]


def train(model: Any, tokenizer: Any, steps: int, progress: Progress) -> None:
    """Trains the talker and the code predictor of a `Qwen3OmniMoeForConditionalGeneration` with a trained thinker.

    The talker reads a character in each step, and generates its code. All codes of a frame are equal.
    """
    randomness = random.Random(2)
    optimization = Optimization(model.talker.train(), steps, rate=2e-3, peak=2e-3)
    samples = _Samples(model, tokenizer)
    for step in range(1, steps + 1):
        loss = samples.loss([random_word(randomness, held_out=False) for _ in range(BATCH)])
        optimization.minimize(loss)
        if optimization.reports(step):
            progress(f"talker: step {step} of {steps}, loss {loss.item():.4f}")


class _Samples:
    """Words as the talker reads them: a projection of the thinker's embeddings of tokens, and its own codes."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self._talker = model.talker
        self._config = model.config
        self._tokenizer = tokenizer
        self._embeddings = model.thinker.get_input_embeddings().weight.detach()

    def loss(self, words: Sequence[str]) -> torch.Tensor:
        spoken = [torch.tensor([code_of(character) for character in spell(word)]) for word in words]
        inputs = [self._inputs(word, codes) for word, codes in zip(words, spoken, strict=True)]
        hidden = self._talker.model(inputs_embeds=pad_sequence(inputs, batch_first=True)).last_hidden_state
        states = [
            row[len(given) - len(codes) - 1 : len(given)]
            for row, given, codes in zip(hidden, inputs, spoken, strict=True)
        ]
        end = torch.tensor([self._config.talker_config.codec_eos_token_id])
        first_codes = torch.cat([part for codes in spoken for part in (codes, end)])
        first = cross_entropy(self._talker.codec_head(torch.cat(states)), first_codes)
        return first + self._predictor_loss(torch.cat([row[:-1] for row in states]), torch.cat(spoken))

    def _inputs(self, word: str, codes: torch.Tensor) -> torch.Tensor:
        """Returns the rows of a word, and in each step the codes of the frame before it. The shape is [rows, width]."""
        rows = self._rows(word)
        return torch.cat([rows[: -len(codes)], rows[-len(codes) :] + self._embed_frames(codes)])

    def _rows(self, word: str) -> torch.Tensor:
        """Returns the request and the header of the response, and a row for each step, of the shape [rows, width]."""
        config, codec = self._config, self._config.talker_config
        prompt, text = prompt_tokens(self._tokenizer, word), response_tokens(self._tokenizer, word)
        padding, start, end = (self._embed([getattr(config, f"tts_{name}_token_id")]) for name in ("pad", "bos", "eos"))
        (voice,) = codec.speaker_id.values()
        codes = [codec.codec_nothink_id, codec.codec_think_bos_id, codec.codec_think_eos_id, voice]
        codes += [codec.codec_pad_id, codec.codec_bos_id]
        header = torch.cat([padding.expand(4, -1), start, self._embed(text[:1])])
        header = header + self._talker.get_input_embeddings()(torch.tensor(codes))
        return torch.cat([self._embed(prompt), header, self._embed(text[1:]), end])

    def _embed(self, tokens: list[int]) -> torch.Tensor:
        rows: torch.Tensor = self._talker.text_projection(self._embeddings[tokens])
        return rows

    def _embed_frames(self, codes: torch.Tensor) -> torch.Tensor:
        """Returns the summed embeddings of the codes of each frame, of the shape [frames, width]."""
        groups = self._talker.code_predictor.get_input_embeddings()
        total: torch.Tensor = self._talker.get_input_embeddings()(codes)
        for group in groups:
            total = total + group(codes)
        return total

    def _predictor_loss(self, hidden: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
        predictor = self._talker.code_predictor
        embedded = [self._talker.get_input_embeddings()(codes)]
        embedded += [group(codes) for group in predictor.get_input_embeddings()[:-1]]
        output = predictor.model(inputs_embeds=torch.stack([hidden, *embedded], 1)).last_hidden_state
        losses = [cross_entropy(head(output[:, n]), codes) for n, head in enumerate(predictor.lm_head, 1)]
        return torch.stack(losses).mean()
