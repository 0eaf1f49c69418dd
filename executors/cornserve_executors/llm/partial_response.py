"""The hand-over of a running response to another executor, also of one without a stream.

The engine has one output for a response without a stream: its end. When another executor should continue it, it has an
output with all tokens at once, and another one after each further token.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from vllm import RequestOutput, SamplingParams
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.async_llm import AsyncLLM

from cornserve_executors.base import HandedOverError
from cornserve_executors.llm.prompt_renderer import RenderedRequest
from cornserve_executors.llm.response_builder import ResponseBuilder
from cornserve_tasklib.chat_response import ChatChunk


def frontend_states(vllm: AsyncLLM, id: str) -> Mapping[str, Any]:
    """Returns what vLLM's frontend keeps of a running request, by the engine's id of each choice."""
    processor = vllm.output_processor
    return {each: processor.request_states[each] for each in processor.external_req_ids.get(id, ())}


class HandOver(Protocol):
    """Lets another executor continue a response."""

    def is_wanted(self) -> bool:
        """Returns whether another executor should continue the response."""
        ...

    def on_wanted(self, callback: Callable[[], None]) -> None:
        """Calls the function when `is_wanted` becomes true."""

    async def send(self, chunks: Sequence[ChatChunk]) -> None:
        """Sends the chunks of a response without a stream, after which the other executor continues."""

    async def save(self, continued: RenderedRequest, cached_tokens: int) -> None:
        """Saves the KV cache of a running request for the other executor, if possible.

        Args:
            continued: the inputs with which the other executor continues.
            cached_tokens: the cached tokens of the prompt.
        """


class PartialResponse:
    """The part of a response without a stream that has been generated.

    Args:
        cached_tokens: see `ResponseBuilder`.
    """

    def __init__(
        self,
        vllm: AsyncLLM,
        id: str,
        rendered: RenderedRequest,
        cached_tokens: int | None,
        hand_over: HandOver,
    ) -> None:
        self._vllm = vllm
        self._id = id
        self._rendered = rendered
        self._cached_tokens = cached_tokens
        self._hand_over = hand_over

    def sampling(self, sampling: SamplingParams) -> SamplingParams:
        """Returns the parameters with which the engine has outputs as soon as another executor should continue."""
        if not self._hand_over.is_wanted():
            self._hand_over.on_wanted(self._add_output)
            return sampling
        sampling = sampling.clone()
        sampling.output_kind = RequestOutputKind.CUMULATIVE
        return sampling

    def _add_output(self) -> None:
        """Adds an output with all tokens, so that the response can be handed over before its next token."""
        for state in frontend_states(self._vllm, self._id).values():
            state.output_kind = RequestOutputKind.CUMULATIVE
            if state.detokenizer.num_output_tokens():
                state.queue.put(state.make_request_output([], None, None, None))

    async def hand_over(self, output: RequestOutput) -> None:
        """Raises `HandedOverError` if another executor can continue exactly after an output with all tokens."""
        part = ResponseBuilder(self._rendered.copied(), self._cached_tokens)
        chunks = [*part.add_output(output)]
        continued = part.continued()
        if continued is not None:  # The request keeps its blocks meanwhile.
            await self._hand_over.send(chunks)
            await self._hand_over.save(continued, part.cached_tokens)
            raise HandedOverError
