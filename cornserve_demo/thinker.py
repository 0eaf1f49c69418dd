"""Trains the thinker of the speaking demo model: it responds with the letters of a word."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from cornserve_demo.optimization import Optimization
from cornserve_demo.spelling import QUESTION, random_word, spell

BATCH = 64
_IGNORED = -100
"""The label of tokens without loss."""

Progress = Callable[[str], None]


def prompt_tokens(tokenizer: Any, word: str) -> list[int]:
    """Returns the tokens of a request to spell a word."""
    messages = [{"role": "user", "content": QUESTION.format(word)}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return _tokens(tokenizer, text)


def response_tokens(tokenizer: Any, word: str) -> list[int]:
    """Returns the tokens of the response, without its end."""
    return _tokens(tokenizer, spell(word))


def _tokens(tokenizer: Any, text: str) -> list[int]:
    tokens: list[int] = tokenizer(text, add_special_tokens=False).input_ids
    return tokens


def train(thinker: Any, tokenizer: Any, steps: int, progress: Progress) -> None:
    """Trains a `Qwen3OmniMoeThinkerForConditionalGeneration`."""
    randomness = random.Random(1)
    optimization = Optimization(thinker.train(), steps, rate=2e-3, peak=2e-3, weight_decay=0.01)
    for step in range(1, steps + 1):
        ids, labels = _draw_batch(tokenizer, randomness)
        logits = thinker(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
        loss = cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=_IGNORED)
        optimization.minimize(loss)
        if optimization.reports(step):
            progress(f"thinker: step {step} of {steps}, loss {loss.item():.4f}")


def _draw_batch(tokenizer: Any, randomness: random.Random) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns tokens and labels of random words, of the shape [words, tokens]."""
    words = [random_word(randomness, held_out=False) for _ in range(BATCH)]
    prompts = [prompt_tokens(tokenizer, word) for word in words]
    responses = [[*response_tokens(tokenizer, word), tokenizer.eos_token_id] for word in words]
    pairs = list(zip(prompts, responses, strict=True))
    longest = max(len(prompt) + len(response) for prompt, response in pairs)

    def pad(rows: list[list[int]], padding: int) -> torch.Tensor:
        return torch.tensor([[*row, *[padding] * (longest - len(row))] for row in rows])

    ids = pad([[*prompt, *response] for prompt, response in pairs], tokenizer.pad_token_id)
    labels = pad([[*[_IGNORED] * len(prompt), *response] for prompt, response in pairs], _IGNORED)
    return ids, labels
