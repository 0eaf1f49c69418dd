"""Reads what a talker needs of a thinker: hidden states, tokens, and the sizes of the media in the prompt."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from pydantic import BaseModel
from vllm import SamplingParams

from cornserve_executors.llm.hidden_states import STATES
from cornserve_executors.llm.prompt_renderer import RenderedRequest
from cornserve_executors.tensor_copies import byte_view, dtype_name
from cornserve_tasklib.spoken_prompt import SpokenPrompt, SpokenTokens


@dataclass(frozen=True, slots=True)
class ThinkerStates:
    """The hidden states of tokens."""

    output: str
    """The field of the thinker's response that contains them."""
    tokens: BaseModel
    """Describes the tokens."""
    data: memoryview
    """The states as rows, in the order of the tokens."""
    dtype: str
    shape: tuple[int, int]


StatesDelivery = Callable[[ThinkerStates], Awaitable[None]]
"""Sends the next hidden states."""


class StatesReader(ABC):
    """Reads the states of one request from the workers. As a context manager, it frees those of a cancelled request.

    Args:
        key: identifies the request in the workers.
        deliver: sends the states.
    """

    output: ClassVar[str]
    """See `ThinkerStates.output`."""

    def __init__(self, vllm: Any, rendered: RenderedRequest, key: str, deliver: StatesDelivery) -> None:
        self._vllm = vllm
        self._key = key
        self._send = deliver
        self._config = vllm.model_config
        self._prompt = _spoken_prompt(rendered.prompt)

    @property
    @abstractmethod
    def positions(self) -> Sequence[int] | None:
        """See `WantedStates.positions`."""

    @abstractmethod
    async def deliver(self, tokens: Sequence[int]) -> None:
        """Delivers further states after an output of the engine.

        Args:
            tokens: the new tokens of the first choice.
        """

    def with_states(self, sampling: SamplingParams) -> SamplingParams:
        """Returns a copy with which the workers keep the states."""
        copy = sampling.clone()
        copy.skip_reading_prefix_cache = True  # Reused tokens have no states.
        copy.extra_args = {**(sampling.extra_args or {}), STATES: {"key": self._key, "positions": self.positions}}
        return copy

    async def _take(self) -> torch.Tensor:
        """Returns the states that the workers have kept since the last call, of the shape [tokens, width]."""
        data: bytes = (await self._vllm.collective_rpc("take_hidden_states", args=(self._key,)))[0]
        width = self._config.get_hidden_size()
        if not data:
            return torch.empty(0, width, dtype=self._config.dtype)
        return torch.frombuffer(bytearray(data), dtype=self._config.dtype).view(-1, width)

    async def _deliver(self, tokens: BaseModel, states: torch.Tensor) -> None:
        rows, width = states.shape
        await self._send(ThinkerStates(self.output, tokens, byte_view(states), dtype_name(states.dtype), (rows, width)))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._take()


class MediaStatesReader(StatesReader):
    """Reads the states of the prompt's media, once: the talker of a Qwen3-Omni needs no others."""

    output = "prompt"

    def __init__(self, vllm: Any, rendered: RenderedRequest, key: str, deliver: StatesDelivery) -> None:
        super().__init__(vllm, rendered, key, deliver)
        thinker = self._config.hf_config.thinker_config
        self._media = {thinker.image_token_id, thinker.video_token_id, thinker.audio_token_id}
        self._is_delivered = False

    @property
    def positions(self) -> Sequence[int]:
        return [n for n, token in enumerate(self._prompt.tokens) if token in self._media]

    async def deliver(self, tokens: Sequence[int]) -> None:
        """Delivers all states at the first call. They are complete when the first token has been generated."""
        if not self._is_delivered:
            self._is_delivered = True
            await self._deliver(self._prompt, await self._take())

    async def __aexit__(self, *_: object) -> None:
        if not self._is_delivered:
            await self._take()


class AllStatesReader(StatesReader):
    """Reads the states of the prompt, and then those of each token of the response but the last, for the talker of a
    Qwen2.5-Omni."""

    output = "states"

    def __init__(self, vllm: Any, rendered: RenderedRequest, key: str, deliver: StatesDelivery) -> None:
        super().__init__(vllm, rendered, key, deliver)
        self._tokens = [] if rendered.continuation is None else [*rendered.continuation.kept_tokens]
        """Tokens of the response whose states have not been delivered."""
        self._states = torch.empty(0, self._config.get_hidden_size(), dtype=self._config.dtype)
        """States that have not been delivered."""
        self._has_prompt = False

    @property
    def positions(self) -> None:
        return None

    async def deliver(self, tokens: Sequence[int]) -> None:
        """Delivers the states of the prompt at the first call, and those of tokens that another token follows.

        A token that ends a response may have states, because the engine computes ahead.
        """
        self._tokens += tokens
        self._states = torch.cat([self._states, await self._take()])
        if not self._has_prompt:
            self._has_prompt = True
            await self._deliver(self._prompt, self._pop_states(len(self._prompt.tokens)))
        if ready := min(len(self._states), len(self._tokens) - 1):
            spoken, self._tokens = self._tokens[:ready], self._tokens[ready:]
            await self._deliver(SpokenTokens(tokens=spoken), self._pop_states(ready))

    def _pop_states(self, rows: int) -> torch.Tensor:
        popped, self._states = self._states[:rows], self._states[rows:]
        return popped


STATES_READERS: dict[str, type[MediaStatesReader | AllStatesReader]] = {
    "qwen2_5_omni": AllStatesReader,
    "qwen3_omni_moe": MediaStatesReader,
}
"""Readers by type of the model."""


def _spoken_prompt(prompt: Any) -> SpokenPrompt:
    def fields(modality: str, name: str) -> Iterator[Any]:
        for item in prompt["mm_kwargs"].get(modality, ()):
            if name in item:
                yield item[name].data.flatten().tolist()

    if "mm_kwargs" not in prompt:
        return SpokenPrompt(tokens=prompt["prompt_token_ids"])
    return SpokenPrompt(
        tokens=prompt["prompt_token_ids"],
        image_grids=[tuple(grid) for grid in fields("image", "image_grid_thw")],
        video_grids=[tuple(grid) for grid in fields("video", "video_grid_thw")],
        seconds_per_grid=[seconds for (seconds,) in fields("video", "second_per_grid_ts")],
        audio_frames=[frames for (frames,) in fields("audio", "audio_feature_lengths")],
        has_sound=any(any(flag) for flag in fields("video", "use_audio_in_video")),
    )
