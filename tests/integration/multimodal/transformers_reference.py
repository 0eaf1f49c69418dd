"""transformers with a whole model: the answers that all others are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from tests.integration.multimodal.chats import TOKENS, Part


class TransformersReference:
    def __init__(self, model: Path) -> None:
        from transformers import AutoModelForImageTextToText, AutoProcessor

        self._processor = AutoProcessor.from_pretrained(model)
        self._model: Any = AutoModelForImageTextToText.from_pretrained(model, dtype=torch.float32).eval()

    def prompt(self, content: Sequence[Part]) -> list[int]:
        tokens: list[int] = self._inputs(content)["input_ids"][0].tolist()
        return tokens

    def answer(self, content: Sequence[Part]) -> list[int]:
        inputs = self._inputs(content)
        with torch.no_grad():
            outputs = self._model.generate(**inputs, max_new_tokens=TOKENS, min_new_tokens=TOKENS, do_sample=False)
        tokens: list[int] = outputs[0, inputs["input_ids"].shape[1] :].tolist()
        return tokens

    def _inputs(self, content: Sequence[Part]) -> Any:
        parts = [
            {"type": "text", "text": part} if isinstance(part, str) else {"type": "image", "image": part}
            for part in content
        ]
        return self._processor.apply_chat_template(
            [{"role": "user", "content": parts}],
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
        )
