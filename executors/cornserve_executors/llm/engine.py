"""Generates responses with vLLM."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import torch
from vllm import RequestOutput, SamplingParams
from vllm.lora.request import LoRARequest
from vllm.v1.engine import exceptions as vllm_exceptions

from cornserve.concurrency import gather_all
from cornserve.due_queue import NO_DUE_TIME, DueTime
from cornserve.transport import TensorView
from cornserve_executors.base import (
    CannotContinueError,
    EngineDeadError,
    HandedOverError,
    InvalidRequestError,
)
from cornserve_executors.llm import trace
from cornserve_executors.llm.constraint_checker import ConstraintChecker, constraints
from cornserve_executors.llm.engine_args import engine_args
from cornserve_executors.llm.kv_cache_connector import LOAD, SAVE, HandOverConnector, KvCacheConnector, KvTarget
from cornserve_executors.llm.kv_format import KvFormat
from cornserve_executors.llm.kv_messages import PrefilledKv
from cornserve_executors.llm.lora import load_adapters
from cornserve_executors.llm.partial_response import HandOver, PartialResponse, frontend_states
from cornserve_executors.llm.prompt_renderer import PromptRenderer, RenderedRequest
from cornserve_executors.llm.response_builder import ResponseBuilder
from cornserve_executors.llm.thinker_states import STATES_READERS, StatesDelivery
from cornserve_executors.tensor_copies import dtype_name, is_finite
from cornserve_executors.vllm.engine import VllmEngine, translate_errors
from cornserve_tasklib.chat_response import ChatChunk, ChatResponse
from cornserve_tasklib.llm import LLMRequest, LLMSettings
from cornserve_tasklib.media import Modality

ChunkDelivery = Callable[[ChatChunk], Awaitable[None]]
"""Sends the next chunk of a response. Waits while the reader is too slow."""


class RequestAbortedError(Exception):
    """vLLM has aborted a request without a reason."""


class UnusableKvError(InvalidRequestError):
    """A KV cache does not belong to the request or to the model, or is lost."""


class LLMEngine(VllmEngine):
    def __init__(self, config: LLMSettings) -> None:
        self._config = config
        arguments = engine_args(config)
        connector = arguments.get("kv_transfer_config", {}).get("kv_connector")
        self._given_policy = config.options.engine_args.get("scheduling_policy")
        """vLLM's scheduling policy that the app has set."""
        self._copies_kv = connector in (KvCacheConnector.__name__, HandOverConnector.__name__)
        super().__init__(arguments)
        self._adapters: dict[str, LoRARequest] = {}
        self._kv_format: KvFormat | None = None
        self._states_reader = STATES_READERS.get(self._vllm.model_config.hf_config.model_type)
        renderer = self._vllm.renderer
        self._prompt_renderer = PromptRenderer(self._vllm.model_config, renderer, config)
        self._constraint_checker = ConstraintChecker(self._vllm.vllm_config, renderer.tokenizer)

    def reads_states(self, output: str) -> bool:
        """Returns whether the talker of the model reads the hidden states in this field of a thinker's response."""
        return self._states_reader is not None and self._states_reader.output == output

    def encodes(self, modality: Modality) -> bool:
        """Returns whether the engine has loaded the model's encoder of this modality."""
        return self._prompt_renderer.chat_media.encodes(modality)

    async def load_adapters(self, modules: Mapping[str, str]) -> None:
        """Loads LoRA adapters, given by name and directory.

        Raises `ExecutorStartError` with the name of an adapter that the model cannot apply completely.
        """
        self._adapters = await load_adapters(self._vllm, modules)

    async def parameter_counts(self) -> dict[str, int]:
        """Returns the parameters of each component of the model that one worker has loaded."""
        counts: list[dict[str, int]] = await self._vllm.collective_rpc("parameter_counts")
        return counts[0]

    async def generate(
        self,
        request: LLMRequest,
        id: str,
        deliver: ChunkDelivery | None = None,
        delivered: Sequence[ChatChunk] = (),
        embeddings: Sequence[TensorView] = (),
        input_bytes: int = 0,
        deliver_states: StatesDelivery | None = None,
        prefilled: PrefilledKv | None = None,
        hand_over: HandOver | None = None,
        due: DueTime = NO_DUE_TIME,
    ) -> ChatResponse:
        """Generates a response, and streams its chunks to `deliver`. Cancelling stops the generation immediately.

        Args:
            delivered: chunks that another executor sent before it died. `deliver` receives the chunks that follow. The
                tokens of some responses cannot become part of the prompt: they are generated again.
            embeddings: the embeddings of the encoded media, in order. The engine reads them until this returns.
            input_bytes: the size of the request.
            deliver_states: receives the hidden states that the talker reads; those of the prompt come before the first
                chunk. Only for thinkers.
            prefilled: the KV cache of the prompt, or of a part of the prompt and the delivered chunks.
            hand_over: allows another executor to continue the response.
            due: when the first token is due. Earlier ones run first, unless the app has set a scheduling policy.

        Raises `HandedOverError` if another executor continues after the chunks that `deliver` has received, and
        `UnusableKvError` if `prefilled` is unusable, before `deliver` has received a chunk.
        """
        async with self._explain_constraint_errors(request):
            rendered = await self._render(request, id, embeddings, input_bytes, stream=deliver is not None)
            if request.prompt_only:
                return rendered.prompt_response()
            rendered, repeated = self._continued(rendered, delivered)
            cached_tokens = None
            if prefilled is not None:
                await self._check_kv(prefilled, rendered)
                cached_tokens = prefilled.metadata.cached_tokens
            response = ResponseBuilder(rendered, cached_tokens, repeated)
            prompt, sampling = rendered.engine_inputs()
            if sampling.max_tokens == 0:
                response.finish_at_limit()
                return response.build()
            prompt, adapter = _with_salt(prompt, request), self._adapter(request)
            if prefilled is not None:
                if prefilled.is_zero:  # Other requests must not find the zeros in the prefix cache.
                    prompt = {**prompt, "cache_salt": id}
                source = prefilled.source(len(rendered.prompt_tokens), len(rendered.known_tokens))
                # Choices load it one after another, so a message of the first one is too early.
                sampling = _with_extra(sampling, LOAD, asdict(source if request.n == 1 else replace(source, key="")))
            async with AsyncExitStack() as stack:
                states = None
                if deliver_states is not None:
                    assert self._states_reader is not None
                    reader = self._states_reader(self._vllm, rendered, id, deliver_states)
                    states = await stack.enter_async_context(reader)
                    sampling = states.with_states(sampling)
                part = None  # That of a response without a stream.
                if hand_over is not None and not repeated and self._continues_elsewhere(request):
                    if deliver is None:
                        part = PartialResponse(self._vllm, id, rendered, cached_tokens, hand_over)
                        sampling = part.sampling(sampling)
                    else:
                        hand_over.on_wanted(partial(self._add_empty_output, id))
                has_output = False
                outputs = self._vllm.generate(
                    prompt,
                    sampling,
                    id,
                    lora_request=adapter,
                    priority=self._priority(request, due),
                    **rendered.reasoning,
                )
                await stack.enter_async_context(aclosing(outputs))
                async for output in outputs:
                    has_output = has_output or bool(output.outputs)
                    if not has_output:
                        continue
                    _raise_if_aborted(output, embeddings, prefilled)
                    if states is not None:
                        await states.deliver(_first_tokens(output))
                    if part is not None and not output.finished:
                        await part.hand_over(output)
                        continue
                    for chunk in response.add_output(output):
                        if deliver is not None and not (repeated and _is_empty(chunk)):
                            await deliver(chunk)
                    if output.finished:
                        trace.record_engine_spans(output)
                    elif deliver is not None and hand_over is not None and hand_over.is_wanted():
                        continued = response.continued() if self._continues_elsewhere(request) else None
                        if continued is not None:  # The request keeps its blocks meanwhile.
                            await hand_over.save(continued, response.cached_tokens)
                            raise HandedOverError
            return response.build()

    def _continued(
        self, rendered: RenderedRequest, delivered: Sequence[ChatChunk]
    ) -> tuple[RenderedRequest, Sequence[ChatChunk]]:
        """Returns the inputs with which a response continues after the delivered chunks. If they are those of the whole
        response, which is generated again, returns the delivered chunks as well.

        Raises `CannotContinueError`.
        """
        if not delivered or not self._config.continues_from_tokens(rendered.request):
            return rendered, delivered
        try:
            return rendered.continue_after(delivered), ()
        except CannotContinueError:
            if not rendered.request.can_be_repeated:
                raise
            return rendered, delivered

    def _add_empty_output(self, id: str) -> None:
        """Adds an output without tokens to a running request, so that it can be handed over before its next token."""
        for state in frontend_states(self._vllm, id).values():
            if state.queue.output is None:
                # vLLM merges the tokens of the next output into this one, but no other field.
                empty = RequestOutput(id, None, state.prompt_token_ids, None, [], finished=False, metrics=state.stats)
                empty.num_cached_tokens = state.num_cached_tokens
                state.queue.put(empty)

    def _continues_elsewhere(self, request: LLMRequest) -> bool:
        """Returns whether another executor may continue a running response exactly after its tokens.

        Not with `stop`, for which vLLM always holds a part of the text back.
        """
        return not request.stop and self._config.continues_from_tokens(request)

    async def render(
        self, request: LLMRequest, id: str, embeddings: Sequence[TensorView], input_bytes: int
    ) -> RenderedRequest:
        """Returns the engine's inputs for a request. See `generate`."""
        async with self._explain_constraint_errors(request):
            return await self._render(request, id, embeddings, input_bytes, stream=False)

    async def _render(
        self, request: LLMRequest, id: str, embeddings: Sequence[TensorView], input_bytes: int, *, stream: bool
    ) -> RenderedRequest:
        if request.priority and self._given_policy != "priority":
            raise InvalidRequestError(
                "priority: this app serves requests in their order: deploy it with "
                "--engine-arg scheduling_policy=priority, or omit it"
            )
        dtype = self._vllm.model_config.dtype
        await gather_all(asyncio.to_thread(_check_finite, tensor, dtype) for tensor in embeddings)
        return await self._prompt_renderer.render(request, embeddings, stream=stream, owner=id, input_bytes=input_bytes)

    def _priority(self, request: LLMRequest, due: DueTime) -> int:
        """Returns vLLM's priority: a smaller one runs first."""
        return due.latest_us // 1000 if self._given_policy is None else request.priority

    async def prefill(
        self,
        rendered: RenderedRequest,
        id: str,
        target: KvTarget,
        embeddings: Sequence[TensorView] = (),
        *,
        samples_first: bool = False,
        due: DueTime = NO_DUE_TIME,
    ) -> tuple[ChatChunk | None, int]:
        """Processes the prompt of a request. The engine saves its KV cache at the same time, or later.

        Returns the first token of the response, and the number of cached tokens. The token is absent without
        `samples_first`, if the response may end with it, or if the response cannot continue after it, because its text
        is incomplete.

        Args:
            target: the memory of the KV cache.
            samples_first: whether to sample the first token. The response must be one that can be continued.
        """
        request = rendered.request
        prompt, sampling = rendered.engine_inputs()
        if not samples_first:
            sampling = SamplingParams(temperature=0, detokenize=False, extra_args=sampling.extra_args)
        sampling = _with_extra(sampling, SAVE, asdict(target))
        sampling.max_tokens = 1
        chunk, cached_tokens = None, 0
        async with self._explain_constraint_errors(request):
            outputs = self._vllm.generate(
                _with_salt(prompt, request),
                sampling,
                id,
                lora_request=self._adapter(request),
                priority=self._priority(request, due),
            )
            async with aclosing(outputs):
                async for output in outputs:
                    _raise_if_aborted(output, embeddings)
                    chunk = _first_chunk(rendered, output) if samples_first else None
                    cached_tokens = output.num_cached_tokens or 0
        return chunk, cached_tokens

    async def save_running(self, id: str, target: KvTarget) -> None:
        """Saves the KV cache of a running request with one choice, between two steps. Its tokens must be computed.

        Raises `RuntimeError` if the request has ended.
        """
        states = frontend_states(self._vllm, id)
        if not states:
            raise RuntimeError("the response has ended")
        (engine_id,) = states
        await self._vllm.collective_rpc("save_running_kv", args=(engine_id, asdict(target)))

    async def end_save(self, target: KvTarget) -> None:
        """Lets the engine send a message when it does not write to the memory of an ended request any more."""
        with suppress(vllm_exceptions.EngineDeadError):  # The executor exits.
            await self._vllm.collective_rpc("end_kv_save", args=(asdict(target),))

    async def kv_format(self) -> KvFormat | None:
        """Returns the format of the KV caches that the engine saves and loads. None if it does not."""
        if self._kv_format is None and self._copies_kv:
            (fields,) = await self._vllm.collective_rpc("kv_format")
            self._kv_format = fields and KvFormat.of(fields)
        return self._kv_format

    async def _check_kv(self, prefilled: PrefilledKv, rendered: RenderedRequest) -> None:
        """Raises `UnusableKvError` for a KV cache of another format or another prompt."""
        found = prefilled.metadata
        if found.format is None:
            return
        expected = await self.kv_format()
        if expected is None:
            raise UnusableKvError("the KV cache of this model is not loaded")
        if difference := expected.difference(found.format):
            raise UnusableKvError(
                f"the decode and the prefill executor have KV caches of different formats ({difference}): give both "
                "tasks the same model and options"
            )
        if rendered.digest(found.tokens) != found.digest:
            raise UnusableKvError("kv: it is that of another prompt: pass the same request to both tasks")

    def _adapter(self, request: LLMRequest) -> LoRARequest | None:
        return self._adapters[request.lora] if request.lora else None

    @asynccontextmanager
    async def _explain_constraint_errors(self, request: LLMRequest) -> AsyncIterator[None]:
        """Raises `InvalidRequestError` with the field of the constraint of the text that caused an error."""
        try:
            with translate_errors():
                yield
        except (EngineDeadError, HandedOverError, CannotContinueError, UnusableKvError):
            raise
        except Exception as error:
            message = await asyncio.to_thread(self._constraint_checker.find_error, request)
            if message is None and isinstance(error, RequestAbortedError):
                fields = ", ".join(constraint.field for constraint in constraints(request))
                message = fields and f"{fields}: the model reached a point where no further token is allowed"
            if not message:
                raise
            raise InvalidRequestError(message) from error


def _with_salt(prompt: Any, request: LLMRequest) -> Any:
    return prompt if request.cache_salt is None else {**prompt, "cache_salt": request.cache_salt}


def _with_extra(sampling: SamplingParams, key: str, value: Any) -> SamplingParams:
    """Returns a copy with a further parameter for a connector."""
    copy = sampling.clone()
    copy.extra_args = {**(sampling.extra_args or {}), key: value}
    return copy


def _first_chunk(rendered: RenderedRequest, output: RequestOutput) -> ChatChunk | None:
    """Returns the only token of an output, unless the response may end with it, or cannot continue after it."""
    (completion,) = output.outputs
    if completion.finish_reason != "length":
        return None
    chunk = ChatChunk(
        text=completion.text, token_ids=list(completion.token_ids), prompt_tokens=len(rendered.prompt_tokens)
    )
    return chunk if rendered.continued_exactly([chunk]) else None


def _is_empty(chunk: ChatChunk) -> bool:
    return not (chunk.text or chunk.token_ids or chunk.reasoning or chunk.tool_calls or chunk.logprobs)


def _first_tokens(output: RequestOutput) -> list[int]:
    """Returns the new tokens of the first choice."""
    return [token for completion in output.outputs if completion.index == 0 for token in completion.token_ids]


def _check_finite(tensor: TensorView, dtype: torch.dtype) -> None:
    """Raises `RuntimeError` for embeddings that the model cannot represent, and `StaleError` for revoked ones."""
    finite = is_finite(tensor.view, tensor.dtype, dtype)
    tensor.check()
    if not finite:
        raise RuntimeError(f"the encoder sent embeddings that are not finite in {dtype_name(dtype)}")


def _raise_if_aborted(
    output: RequestOutput, embeddings: Sequence[TensorView], prefilled: PrefilledKv | None = None
) -> None:
    """Raises `StaleError` if revoked tensors explain why vLLM aborted the request, else `RequestAbortedError`.

    Raises `UnusableKvError` if the state of the request was not loaded.
    """
    if any(completion.finish_reason == "error" for completion in output.outputs):
        unread = () if prefilled is None else prefilled.unread
        if prefilled is not None and prefilled.is_state and unread:
            raise UnusableKvError("the KV cache was not loaded")
        for tensor in (*embeddings, *unread):
            tensor.check()
        raise RequestAbortedError("vLLM aborted the request")
    if prefilled is not None and prefilled.is_state:  # Its only choice has output, so the KV cache has been loaded.
        prefilled.unread = ()
