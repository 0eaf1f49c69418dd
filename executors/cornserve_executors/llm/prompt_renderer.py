"""From a request to what the engine is asked, by vLLM's own code: it knows every model's template and its oddities.

vLLM's server is made of parts, and these are its: the request types, the renderer (templates, tokenizers), the parsers
of tool calls and reasoning. Its HTTP handlers are not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from vllm import SamplingParams
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.completion.protocol import CompletionRequest as VllmCompletionRequest
from vllm.entrypoints.serve.engine.protocol import ErrorResponse
from vllm.parser import Parser
from vllm.renderers import BaseRenderer
from vllm.renderers.online_renderer import OnlineRenderer
from vllm.sampling_params import RequestOutputKind

from cornserve.transport import TensorView
from cornserve_executors.base import ExecutorStartError, InvalidRequestError
from cornserve_executors.llm.chat_images import ChatImages
from cornserve_executors.llm.chat_prompt import ChatPrompt
from cornserve_executors.llm.continuation import Continuation
from cornserve_executors.llm.output_parser import OutputParser
from cornserve_tasklib.chat import ChatRequest
from cornserve_tasklib.completion import CompletionRequest
from cornserve_tasklib.llm import LLMRequest, LLMTask
from cornserve_tasklib.response import ChatChunk

NO_PARAMETERS = {"type": "object", "properties": {}}


@dataclass(frozen=True, slots=True)
class RenderedRequest:
    """What the engine is asked, and what its outputs are read with."""

    request: LLMRequest
    prompt: Any
    sampling: SamplingParams
    tokenizer: Any
    new_parsing: Callable[[], OutputParser] | None = None
    """For each choice one, where not all of the answer is text."""
    reasoning: dict[str, Any] = field(default_factory=dict)
    """What the engine has to know of the reasoning, where the answer's form is constrained."""
    continuation: Continuation | None = None

    def after(self, delivered: Sequence[ChatChunk]) -> Self:
        """This one, continued. Raises `InvalidRequestError` if that would not be exact."""
        greedy = self.sampling.temperature == 0
        return replace(self, continuation=Continuation(delivered, self.prompt_tokens, self.tokenizer, greedy=greedy))

    @property
    def prompt_tokens(self) -> list[int]:
        tokens: list[int] = self.prompt["prompt_token_ids"]
        return tokens

    def inputs(self) -> tuple[Any, SamplingParams]:
        """The engine's prompt, and what it draws by. A continued answer is part of the prompt."""
        if self.continuation is None:
            return self.prompt, self.sampling
        kept = self.continuation.kept
        sampling = self.sampling.clone()
        sampling.max_tokens -= len(kept)
        return {**self.prompt, "prompt_token_ids": [*self.prompt_tokens, *kept]}, sampling

    @property
    def streams(self) -> bool:
        return bool(self.sampling.output_kind == RequestOutputKind.DELTA)


class PromptRenderer:
    def __init__(self, model_config: Any, renderer: BaseRenderer, config: LLMTask) -> None:
        self._model_config = model_config
        self._tokenizer = renderer.tokenizer
        self.images = ChatImages(model_config, renderer)

        def online(tool_strict_level: str) -> OnlineRenderer:
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
            self._renderer = online("auto")
            self._strict_renderer = online("parameter")
        except TypeError as error:  # A parser needs tokens that this tokenizer has not.
            raise ExecutorStartError(f"tool_parser, reasoning_parser: {error}") from error

    async def of(
        self, request: LLMRequest, received: Sequence[TensorView] = (), *, stream: bool, owner: str = ""
    ) -> RenderedRequest:
        """Templates, tokenizers and processors of images run in threads.

        Args:
            received: the embeddings of the request's encoded images, in their order.
            owner: in whose turn its other images are opened.
        """
        if isinstance(request, CompletionRequest):
            return await self._completion(request, stream)
        return await self._chat(request, received, stream, owner)

    async def _completion(self, request: CompletionRequest, stream: bool) -> RenderedRequest:
        fields = request.model_dump(exclude_defaults=True)
        # vLLM refuses a limit beyond the context, where ours is one that is never reached.
        fields |= {"stream": stream, "max_tokens": min(request.max_tokens, self._model_config.max_model_len)}
        vllm_request = VllmCompletionRequest.model_validate(fields)
        result = await self._renderer.render_completion(vllm_request)
        if isinstance(result, ErrorResponse):
            raise InvalidRequestError(result.error.message)
        (prompt,) = result
        sampling = vllm_request.to_sampling_params(self._max_tokens(request, prompt), {})
        return RenderedRequest(request, prompt, sampling, self._tokenizer)

    async def _chat(
        self, request: ChatRequest, received: Sequence[TensorView], stream: bool, owner: str
    ) -> RenderedRequest:
        self._check_tools(request)
        conversation = ChatPrompt(request, received, self.images, owner)
        fields = request.model_dump(exclude_defaults=True, exclude={"messages", "max_tokens", "max_completion_tokens"})
        if request.tools is not None:
            fields["tools"] = [_with_parameters(tool) for tool in fields["tools"]]
        # Who has to call may not do so wrongly. Who may call does as the tool's `strict` says.
        has_to_call = request.tool_choice not in (None, "auto", "none")
        renderer = self._strict_renderer if has_to_call else self._renderer
        async with conversation.messages() as messages:
            fields |= {"messages": messages, "ec_transfer_params": conversation.embeddings, "stream": stream}
            vllm_request = ChatCompletionRequest.model_validate(fields)
            prompt = await conversation.prompt(renderer, vllm_request)
        # Rendering has made a grammar of the tools, and of the choice among them.
        sampling = vllm_request.to_sampling_params(self._max_tokens(request, prompt), {})
        parser_type = self._parser_type(request)
        if parser_type is None:
            return RenderedRequest(request, prompt, sampling, self._tokenizer)
        variables = self._renderer.effective_chat_template_kwargs(vllm_request)
        tokens = prompt["prompt_token_ids"]

        def new_parser() -> Parser:
            return parser_type(
                self._tokenizer,
                vllm_request.tools,
                chat_template_kwargs=variables,
                model_config=self._model_config,
            )

        def new_parsing() -> OutputParser:
            return OutputParser(new_parser(), vllm_request, tokens)

        reasoning = _reasoning(vllm_request, new_parser(), variables, tokens)
        return RenderedRequest(request, prompt, sampling, self._tokenizer, new_parsing, reasoning)

    def _check_tools(self, request: ChatRequest) -> None:
        parser_type = self._renderer.parser
        can_call = parser_type is not None and parser_type.tool_parser_cls is not None
        if request.tools is not None and request.tool_choice != "none" and not can_call:
            raise InvalidRequestError(
                "tools: this app cannot tell what its model calls: it is deployed without a tool_parser (see LLMTask)"
            )

    def _parser_type(self, request: ChatRequest) -> type[Parser] | None:
        """None where all of the answer is text."""
        parser_type: type[Parser] | None = self._renderer.parser
        if parser_type is None or (request.tools is None and parser_type.reasoning_parser_cls is None):
            return None
        return parser_type

    def _max_tokens(self, request: LLMRequest, prompt: Any) -> int:
        context, length = self._model_config.max_model_len, len(prompt["prompt_token_ids"])
        room: int = context - length
        if room < 1:
            raise InvalidRequestError(
                f"the prompt has {length} tokens, which leaves no room for an answer in a context of {context}"
            )
        return min(room if request.token_limit is None else request.token_limit, room)


def _with_parameters(tool: dict[str, Any]) -> dict[str, Any]:
    """As at OpenAI, a function that says nothing of parameters has none. vLLM would let the model make some up."""
    function = tool["function"]
    return {**tool, "function": {**function, "parameters": function.get("parameters") or NO_PARAMETERS}}


def _reasoning(
    request: ChatCompletionRequest, parser: Parser, variables: dict[str, Any], prompt_tokens: list[int]
) -> dict[str, Any]:
    if parser.reasoning_parser is None:
        return {}
    return {
        "reasoning_ended": request.resolve_reasoning_ended(parser, prompt_tokens),
        "reasoning_parser_kwargs": {"chat_template_kwargs": variables},
    }
