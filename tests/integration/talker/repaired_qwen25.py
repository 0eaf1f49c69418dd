"""Speech of Qwen2.5-Omni as transformers generates it, with the repairs of `repair_talker`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray
from PIL.Image import Image

from cornserve_executors.omni.families import repair_talker
from tests.integration.talker.reference import SpeechReference

BANDS, BLOCK_FRAMES = 80, 24
END_CODES = [71, 73]


class RepairedSpeech:
    """transformers' own model with greedy decoding, and with noise that depends on the seed and the block."""

    def __init__(self, model: Path) -> None:
        from transformers import AutoProcessor, Qwen2_5OmniForConditionalGeneration

        self._model = Qwen2_5OmniForConditionalGeneration.from_pretrained(model).eval()
        self._processor = AutoProcessor.from_pretrained(model)
        repair_talker(self._model.talker)

    def speak(
        self,
        chat: Sequence[dict[str, Any]],
        voice: str,
        tokens: int,
        codes: int,
        seed: int,
        images: Sequence[Image] = (),
        audio: Sequence[NDArray[np.float32]] = (),
    ) -> SpeechReference:
        """Generates text of a number of tokens, and speech of a number of codes. The last token is not spoken."""
        prompt = self._processor.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        inputs = self._processor(
            text=prompt, images=list(images) or None, audio=list(audio) or None, return_tensors="pt"
        )
        with noise_of(seed):
            sequence, samples = self._model.generate(
                **inputs,
                speaker=voice,
                thinker_max_new_tokens=tokens,
                thinker_eos_token_id=-1,
                thinker_do_sample=False,
                talker_do_sample=False,
                talker_max_new_tokens=codes,
                talker_eos_token_id=END_CODES,
            )
        return SpeechReference(sequence[0, inputs["input_ids"].shape[1] :].tolist(), samples.numpy())

    def decode(self, codes: torch.Tensor, voice: str, seed: int) -> torch.Tensor:
        """Returns the samples of codes of the shape [1, codes], decoded at once."""
        described = self._model.speaker_map[voice]
        with noise_of(seed), torch.no_grad():
            samples: torch.Tensor = self._model.token2wav(
                codes, conditioning=described["cond"], reference_mel=described["ref_mel"]
            )
        return samples.flatten()


@contextmanager
def noise_of(seed: int) -> Iterator[None]:
    """Replaces the noise of spectrograms by that which the vocoder draws for a seed."""
    draw = torch.randn

    def randn(size: Any, **kwargs: Any) -> torch.Tensor:
        if len(size) != 3 or size[2] != BANDS:
            return draw(size, **kwargs)
        blocks = [_noise(seed, block) for block in range(-(-size[1] // BLOCK_FRAMES))]
        return torch.cat(blocks)[None, : size[1]]

    with patch.object(torch, "randn", randn):
        yield


def _noise(seed: int, block: int) -> torch.Tensor:
    generator = np.random.Generator(np.random.Philox(key=seed, counter=[0, 0, 1, block]))
    return torch.from_numpy(generator.standard_normal((BLOCK_FRAMES, BANDS), np.float32))
