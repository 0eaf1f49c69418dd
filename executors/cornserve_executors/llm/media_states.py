"""Reads a prompt with media as a talker needs it: its tokens, the sizes of its media, and their hidden states."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

from vllm import SamplingParams

from cornserve_executors.llm.hidden_states import STATES
from cornserve_executors.llm.prompt_renderer import RenderedRequest
from cornserve_executors.tensor_copies import dtype_name
from cornserve_tasklib.spoken_prompt import SpokenPrompt


@dataclass(frozen=True, slots=True)
class MediaStates:
    """A prompt, and the hidden states of its media."""

    prompt: SpokenPrompt
    data: bytes
    """The states as rows, in the order of the tokens."""
    dtype: str
    shape: tuple[int, int]


StatesDelivery = Callable[[MediaStates], Awaitable[None]]
"""Sends the hidden states of the prompt's media."""


class MediaStatesReader:
    """Reads the states of one request from the workers. As a context manager, it frees those of a cancelled request.

    Args:
        key: identifies the request in the workers.
        deliver: sends the states.
    """

    def __init__(self, vllm: Any, rendered: RenderedRequest, key: str, deliver: StatesDelivery) -> None:
        self._vllm = vllm
        self._key = key
        self._deliver = deliver
        self._prompt = _spoken_prompt(rendered.prompt)
        thinker = vllm.model_config.hf_config.thinker_config
        media = {thinker.image_token_id, thinker.video_token_id, thinker.audio_token_id}
        self._positions = [n for n, token in enumerate(self._prompt.tokens) if token in media]
        self._is_read = False

    def with_states(self, sampling: SamplingParams) -> SamplingParams:
        """Returns a copy with which the workers keep the states."""
        copy = sampling.clone()
        copy.skip_reading_prefix_cache = True  # Reused tokens have no states.
        wanted = {"key": self._key, "positions": self._positions}
        copy.extra_args = {**(sampling.extra_args or {}), STATES: wanted}
        return copy

    async def deliver_once(self) -> None:
        """Delivers the states at the first call. They are complete when the first token has been generated."""
        if self._is_read:
            return
        data = await self._take()
        config = self._vllm.model_config
        shape = len(self._positions), config.get_hidden_size()
        await self._deliver(MediaStates(self._prompt, data, dtype_name(config.dtype), shape))

    async def _take(self) -> bytes:
        self._is_read = True
        data: bytes = (await self._vllm.collective_rpc("take_hidden_states", args=(self._key,)))[0]
        return data

    async def __aenter__(self) -> MediaStatesReader:
        return self

    async def __aexit__(self, *_: object) -> None:
        if not self._is_read:
            await self._take()


def _spoken_prompt(prompt: Any) -> SpokenPrompt:
    def fields(modality: str, name: str) -> Iterator[Any]:
        for item in prompt["mm_kwargs"].get(modality, ()):
            if name in item:
                yield item[name].data.flatten().tolist()

    return SpokenPrompt(
        tokens=prompt["prompt_token_ids"],
        image_grids=[tuple(grid) for grid in fields("image", "image_grid_thw")],
        video_grids=[tuple(grid) for grid in fields("video", "video_grid_thw")],
        seconds_per_grid=[seconds for (seconds,) in fields("video", "second_per_grid_ts")],
        audio_frames=[frames for (frames,) in fields("audio", "audio_feature_lengths")],
        has_sound=any(any(flag) for flag in fields("video", "use_audio_in_video")),
    )
