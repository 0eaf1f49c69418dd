"""Renders requests to engine inputs with vLLM's own code, which supports the chat template of every model.

This module uses the parts of vLLM's server below its HTTP handlers: the request types, the renderer (templates and
tokenizers), and the parsers of tool calls and reasoning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, Self

from vllm import SamplingParams
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.completion.protocol import CompletionRequest as VllmCompletionRequest
from vllm.entrypoints.serve.engine.protocol import ErrorResponse
from vllm.parser import Parser
from vllm.renderers import BaseRenderer
from vllm.renderers.hf import HfRenderer, resolve_chat_template, resolve_chat_template_kwargs
from vllm.renderers.online_renderer import OnlineRenderer
from vllm.sampling_params import RequestOutputKind

from cornserve.concurrency import raise_if_task_cancelled
from cornserve.transport import TensorView
from cornserve_executors.base import CannotContinueError, ExecutorStartError, InvalidRequestError
from cornserve_executors.llm.chat_media import ChatMedia
from cornserve_executors.llm.chat_prompt import ChatPrompt
from cornserve_executors.llm.continuation import Continuation
from cornserve_executors.llm.output_parser import OutputParser
from cornserve_executors.vllm.large_texts import LargeTexts, check_length
from cornserve_tasklib.chat_request import ChatRequest
from cornserve_tasklib.chat_response import ChatChunk, ChatResponse, Usage
from cornserve_tasklib.completion import CompletionRequest
from cornserve_tasklib.llm import LLMRequest, LLMSettings

NO_PARAMETERS = {"type": "object", "properties": {}}


@dataclass(frozen=True, slots=True)
class RenderedRequest:
    """The engine's inputs for a request, and the parser of its outputs."""

    request: LLMRequest
    prompt: Any
    sampling: SamplingParams
    tokenizer: Any
    new_parser: Callable[[], OutputParser] | None = None
    """Creates a parser for a choice. None if all of the output is text."""
    reasoning: dict[str, Any] = field(default_factory=dict)
    """Arguments with which the engine detects the end of the reasoning, before it applies a grammar."""
    continuation: Continuation | None = None

    def continue_after(self, delivered: Sequence[ChatChunk]) -> Self:
        """Returns a copy that continues after these chunks. Raises `CannotContinueError` if that cannot be exact."""
        greedy = self.sampling.temperature == 0
        return replace(self, continuation=Continuation(delivered, self.prompt_tokens, self.tokenizer, greedy=greedy))

    def continued_exactly(self, chunks: Sequence[ChatChunk]) -> Self | None:
        """Returns a copy that continues after these chunks, if it generates none of their tokens again."""
        with suppress(CannotContinueError):
            continued = self.continue_after(chunks)
            tokens = [token for chunk in chunks for token in chunk.token_ids]
            if continued.continuation is not None and continued.continuation.kept_tokens == tokens:
                return continued
        return None

    def copied(self) -> Self:
        """Returns a copy for another builder, which compares delivered tokens with those that are generated again."""
        return replace(self, continuation=copy(self.continuation))

    @property
    def prompt_tokens(self) -> list[int]:
        tokens: list[int] = self.prompt["prompt_token_ids"]
        return tokens

    @property
    def known_tokens(self) -> list[int]:
        """The tokens of the prompt, and the delivered ones of a continued response."""
        return (
            self.prompt_tokens if self.continuation is None else [*self.prompt_tokens, *self.continuation.kept_tokens]
        )

    def digest(self, tokens: int) -> str:
        """Identifies all that the KV cache of that many known tokens depends on, within a model: them, the media and
        the adapter."""
        media = sorted((self.prompt.get("mm_hashes") or {}).items())
        return sha256(repr((self.known_tokens[:tokens], media, self.request.lora)).encode()).hexdigest()

    def prompt_response(self) -> ChatResponse:
        """Returns the tokens of the prompt, and its text if the request is a text or tokens.

        Raises `InvalidRequestError` if the model does not have one of the given tokens.
        """
        tokens, text = self.prompt_tokens, ""
        if isinstance(self.request, CompletionRequest):
            known, text = len(self.tokenizer), self.prompt_text
            if isinstance(self.request.prompt, list) and max(tokens) >= known:
                raise InvalidRequestError(
                    f"prompt: no token {max(tokens)}: the tokens of this model are 0 to {known - 1}"
                )
        return ChatResponse(text=text, prompt_token_ids=tokens, usage=Usage(prompt_tokens=len(tokens)))

    @property
    def prompt_text(self) -> str:
        """The text of a request that echoes it. vLLM leaves out an empty one."""
        text: str = self.prompt.get("prompt", "")
        return text

    def engine_inputs(self) -> tuple[Any, SamplingParams]:
        """Returns the prompt, including the delivered tokens of a continued response, and the sampling parameters."""
        if self.continuation is None:
            return self.prompt, self.sampling
        sampling = self.sampling.clone()
        sampling.max_tokens -= len(self.continuation.kept_tokens)
        return {**self.prompt, "prompt_token_ids": self.known_tokens}, sampling

    @property
    def streams(self) -> bool:
        return bool(self.sampling.output_kind == RequestOutputKind.DELTA)


MAX_PROMPT_LOGPROBS = 50_000
"""The maximum number of log probabilities of a prompt. Their JSON has about 3 MB."""

_UNSENT = {"lora", "priority", "prompt_only", "prompt_logprobs"}
"""Fields of a request that vLLM's request does not get."""

_UNSENT_OF_CHATS = {
    *_UNSENT,
    "messages",
    "max_tokens",
    "max_completion_tokens",
    "mm_processor_kwargs",
    "media_io_kwargs",
}
"""Fields of a chat that vLLM's request does not get."""


class PromptRenderer:
    def __init__(self, model_config: Any, renderer: BaseRenderer, config: LLMSettings) -> None:
        self._model_config = model_config
        self._tokenizer = renderer.tokenizer
        self._chat_template = config.chat_template
        self._has_hf_template = isinstance(renderer, HfRenderer)
        self._large_texts = LargeTexts()
        self.chat_media = ChatMedia(model_config, renderer)

        def online_renderer(tool_strict_level: str) -> OnlineRenderer:
            return OnlineRenderer(
                model_config,
                renderer,
                request_logger=None,
                chat_template=config.chat_template,
                chat_template_content_format="auto",
                enable_auto_tools=config.tool_parser is not None,
                tool_parser=config.tool_parser,
                reasoning_parser=config.reasoning_parser,
                tool_strict_level=tool_strict_level,
            )

        try:
            self._renderer = online_renderer("auto")
            self._strict_renderer = online_renderer("parameter")
        except TypeError as error:  # A parser needs tokens that the tokenizer lacks.
            raise ExecutorStartError(f"tool_parser, reasoning_parser: {error}") from error

    async def render(
        self,
        request: LLMRequest,
        embeddings: Sequence[TensorView] = (),
        *,
        stream: bool,
        owner: str = "",
        input_bytes: int = 0,
    ) -> RenderedRequest:
        """Renders a request. Templates, tokenizers and image processors run in threads.

        Args:
            embeddings: the embeddings of the request's encoded media, in order.
            owner: shares the capacity for decoded media and large texts fairly with other owners.
            input_bytes: the size of the request. Large ones take turns.
        """

        async def render() -> RenderedRequest:
            await check_length(_texts(request), self._tokenizer, self._model_config.max_model_len)
            if isinstance(request, CompletionRequest):
                return await self._render_completion(request, stream)
            return await self._render_chat(request, embeddings, stream, owner)

        rendered = await self._large_texts.run(render, input_bytes, owner)
        raise_if_task_cancelled()  # vLLM's renderer may have dropped it.
        return rendered

    async def _render_completion(self, request: CompletionRequest, stream: bool) -> RenderedRequest:
        fields = request.model_dump(exclude_defaults=True, exclude=_UNSENT)
        # vLLM checks the limit before it counts the tokens of the prompt. `_max_tokens` checks it with their number.
        fields |= {"stream": stream, "max_tokens": min(request.max_tokens, self._model_config.max_model_len)}
        vllm_request = VllmCompletionRequest.model_validate(fields)
        result = await self._renderer.render_completion(vllm_request)
        if isinstance(result, ErrorResponse):
            raise InvalidRequestError(result.error.message)
        (prompt,) = result
        sampling = vllm_request.to_sampling_params(self._max_tokens(request, prompt), {})
        _add_prompt_logprobs(sampling, request, len(prompt["prompt_token_ids"]))
        return RenderedRequest(request, prompt, sampling, self._tokenizer)

    async def _render_chat(
        self, request: ChatRequest, embeddings: Sequence[TensorView], stream: bool, owner: str
    ) -> RenderedRequest:
        self._check_tools(request)
        chat_prompt = ChatPrompt(request, embeddings, self.chat_media, owner)
        fields = request.model_dump(exclude_defaults=True, exclude=_UNSENT_OF_CHATS)
        if request.tools is not None:
            fields["tools"] = [_with_parameters(tool) for tool in fields["tools"]]
        self._check_reasoning_effort(request, fields.get("tools"))
        # A forced tool call uses the strict grammar. An optional one follows the tool's `strict`.
        is_forced = request.tool_choice not in (None, "auto", "none")
        renderer = self._strict_renderer if is_forced else self._renderer
        async with chat_prompt.messages() as messages:
            fields |= {"messages": messages, "ec_transfer_params": chat_prompt.tensor_references, "stream": stream}
            vllm_request = ChatCompletionRequest.model_validate(fields)
            prompt = await chat_prompt.render(renderer, vllm_request)
        # Rendering has added the grammar of the tools to `vllm_request`.
        sampling = vllm_request.to_sampling_params(self._max_tokens(request, prompt), {})
        _add_prompt_logprobs(sampling, request, len(prompt["prompt_token_ids"]))
        parser_type = self._parser_type(request)
        if parser_type is None:
            return RenderedRequest(request, prompt, sampling, self._tokenizer)
        variables = self._renderer.effective_chat_template_kwargs(vllm_request)
        tokens = prompt["prompt_token_ids"]

        def new_vllm_parser() -> Parser:
            return parser_type(
                self._tokenizer,
                vllm_request.tools,
                chat_template_kwargs=variables,
                model_config=self._model_config,
            )

        def new_parser() -> OutputParser:
            return OutputParser(new_vllm_parser(), vllm_request, tokens)

        reasoning = _reasoning_arguments(vllm_request, new_vllm_parser(), variables, tokens)
        return RenderedRequest(request, prompt, sampling, self._tokenizer, new_parser, reasoning)

    def _check_tools(self, request: ChatRequest) -> None:
        parser_type = self._renderer.parser
        can_call = parser_type is not None and parser_type.tool_parser_cls is not None
        if request.tools is not None and request.tool_choice != "none" and not can_call:
            raise InvalidRequestError(
                "tools: this app cannot parse tool calls: deploy it with a tool_parser (see LLMTask)"
            )

    def _check_reasoning_effort(self, request: ChatRequest, tools: list[dict[str, Any]] | None) -> None:
        if request.reasoning_effort is None or not self._has_hf_template:
            return
        parser_type = self._renderer.parser
        reasons = parser_type is not None and parser_type.reasoning_parser_cls is not None
        if request.reasoning_effort == "none" and not reasons:
            return  # Anthropic's clients send this to models that do not reason.
        template = resolve_chat_template(self._tokenizer, self._chat_template, tools, model_config=self._model_config)
        variables = {"reasoning_effort": request.reasoning_effort, "enable_thinking": True}
        if template and not resolve_chat_template_kwargs(self._tokenizer, template, variables):
            raise InvalidRequestError(
                "reasoning_effort: the model's chat template has neither `reasoning_effort` nor `enable_thinking`: "
                "remove it"
            )

    def _parser_type(self, request: ChatRequest) -> type[Parser] | None:
        """Returns the parser of the output, or None if all of it is text."""
        parser_type: type[Parser] | None = self._renderer.parser
        if parser_type is None or (request.tools is None and parser_type.reasoning_parser_cls is None):
            return None
        return parser_type

    def _max_tokens(self, request: LLMRequest, prompt: Any) -> int:
        context, length = self._model_config.max_model_len, len(prompt["prompt_token_ids"])
        available: int = context - length
        if available < 1:
            raise InvalidRequestError(
                f"the prompt has {length} tokens, which leaves no space for a response: this model's maximum context "
                f"length is {context} tokens"
            )
        limit = request.token_limit
        if limit is not None and limit > context:
            name = "max_tokens" if request.max_tokens is not None else "max_completion_tokens"
            raise InvalidRequestError(
                f"{name}: {limit} is too large: this model's maximum context length is {context} tokens, of which the "
                f"prompt has {length}: give at most {available}"
            )
        return available if limit is None else min(limit, available)


def _texts(request: LLMRequest) -> list[str]:
    if isinstance(request, CompletionRequest):
        return [request.prompt] if isinstance(request.prompt, str) else []
    return [text for message in request.messages for text in message.texts]


def _add_prompt_logprobs(sampling: SamplingParams, request: LLMRequest, tokens: int) -> None:
    """Adds the log probabilities of the prompt, which vLLM's requests refuse for streamed responses.

    Raises `InvalidRequestError` if there are too many for the event loops that convert them.

    Args:
        tokens: the length of the prompt.
    """
    if request.prompt_logprobs is not None:
        count = tokens * (request.prompt_logprobs + 1)
        if count > MAX_PROMPT_LOGPROBS:
            raise InvalidRequestError(
                f"prompt_logprobs: {tokens} tokens with {request.prompt_logprobs} have {count} log probabilities: at "
                f"most {MAX_PROMPT_LOGPROBS} are allowed: send a lower number, or a shorter prompt"
            )
        sampling.prompt_logprobs = request.prompt_logprobs
        sampling.skip_reading_prefix_cache = True  # Cached tokens have no log probabilities.


def _with_parameters(tool: dict[str, Any]) -> dict[str, Any]:
    """Adds an empty `parameters` schema to a function without `parameters`, like OpenAI. vLLM would allow any."""
    function = tool["function"]
    return {**tool, "function": {**function, "parameters": function.get("parameters") or NO_PARAMETERS}}


def _reasoning_arguments(
    request: ChatCompletionRequest, parser: Parser, variables: dict[str, Any], prompt_tokens: list[int]
) -> dict[str, Any]:
    if parser.reasoning_parser is None:
        return {}
    return {
        "reasoning_ended": request.resolve_reasoning_ended(parser, prompt_tokens),
        "reasoning_parser_kwargs": {"chat_template_kwargs": variables},
    }
