"""Workloads of real models whose responses are images or speech."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from string import ascii_lowercase
from typing import Any

from benchmarks.harness.strategies.workloads import Paths, TypedWorkload
from cornserve.bench.requests import random_text

WORD_LETTERS = 6
MAX_TOKENS = 14
"""The letters, the characters between them, and the end."""


@dataclass(frozen=True, slots=True)
class ImageRequests:
    """Requests for images.

    Args:
        model: the directory of an image model that can be split.
        side: width and height of an image in pixels.
    """

    model: Path
    side: int
    steps: int
    words: int

    def source(self, name: str) -> str:
        return f"""\
from cornserve import App
from cornserve_tasklib import GenerateImages

paths = [GenerateImages(model_id={str(self.model)!r}, split=split) for split in (False, True)]
app = App({name!r}, paths)
"""

    @property
    def strategies(self) -> dict[str, Paths]:
        stages = self.components[0]
        monolith = ("+".join(stages),)
        return {"monolith": [monolith], "separate": [stages], "planner": [monolith, stages]}

    @property
    def components(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        stages = ("text_encoder", "denoiser", "vae")
        return stages, stages

    def draw(self, random: Random, is_first: bool) -> Mapping[str, Any]:
        size = f"{self.side}x{self.side}"
        return {"prompt": random_text(self.words, random), "size": size, "num_inference_steps": self.steps}


@dataclass(frozen=True, slots=True)
class SpeechRequests:
    """Requests to spell words, with spoken responses and with written ones.

    Args:
        model: the directory of an Omni model that speaks.
    """

    model: Path

    def source(self, name: str) -> str:
        return f"""\
from cornserve import App
from cornserve_tasklib import OmniChat, SpeakingChat

paths = [chat(model_id={str(self.model)!r}) for chat in (SpeakingChat, OmniChat)]
app = App({name!r}, paths)
"""

    @property
    def strategies(self) -> dict[str, Paths]:
        thinker = "audio_encoder+image_encoder+video_encoder+llm"
        monolith, separate = (f"{thinker}+talker+vocoder",), (thinker, "talker+vocoder")
        return {"monolith": [monolith], "separate": [separate], "planner": [monolith, separate]}

    @property
    def components(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return ("llm", "talker", "vocoder"), ("llm",)

    def draw(self, random: Random, is_first: bool) -> Mapping[str, Any]:
        word = "".join(random.choices(ascii_lowercase, k=WORD_LETTERS))
        messages = [{"role": "user", "content": f"Spell {word}"}]
        chat = {"messages": messages, "max_tokens": MAX_TOKENS, "temperature": 0}
        return {"chat": chat, "modalities": ["text", "audio"] if is_first else ["text"]}


def image_workloads(model: Path) -> tuple[TypedWorkload, ...]:
    return (TypedWorkload("images", ImageRequests(model, side=64, steps=8, words=8), share=1.0),)


def speech_workloads(model: Path) -> tuple[TypedWorkload, ...]:
    requests = SpeechRequests(model)
    return TypedWorkload("spoken", requests, share=1.0), TypedWorkload("half-spoken", requests, share=0.5)
