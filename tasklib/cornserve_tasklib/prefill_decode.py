"""Language models whose prefill and decode run in different executors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pydantic import BaseModel

from cornserve.task import ExecutorSpec, Output, Tensor, UnitTask
from cornserve.task.errors import DefinitionError
from cornserve_policies.input_size import InputSize
from cornserve_tasklib.chat_response import ChatResponse
from cornserve_tasklib.encoder import Embeddings
from cornserve_tasklib.engine import EngineOptions
from cornserve_tasklib.llm import (
    Chat,
    LanguageModel,
    LLMRequest,
    LLMSettings,
    Mllm,
    encoders,
    with_embeddings,
)


class PrefilledPrompt(Output):
    """A prompt that a language model has processed."""

    kv: Tensor = Tensor()
    """The keys and values of its tokens. Pass it to one `DecodeTask`, with the same request: its memory is free as soon
    as the task has copied it, and the prompt is processed again for a later one."""
    first: Tensor = Tensor()
    """The first token of the response, if `PrefillTask.samples_first`, before the keys and values are saved. The
    metadata is a `FirstToken`. Without the token, the decode executor computes it."""


FREE_OPTIONS: Final = frozenset(
    {
        *("max_num_seqs", "max_num_batched_tokens", "enable_prefix_caching", "gpu_memory_utilization"),
        *("kv_cache_memory_bytes", "enforce_eager", "engine_args"),
    }
)
"""Options in which prefill and decode may differ, because their keys and values are the same."""

FREE_ARGUMENTS: Final = frozenset(
    {
        *("async_scheduling", "compilation_config", "cudagraph_capture_sizes", "enable_chunked_prefill"),
        *("long_prefill_token_threshold", "max_long_partial_prefills", "max_num_partial_prefills"),
        "max_cudagraph_capture_size",
    }
)
"""The same of `engine_args`."""


class PrefillSource(UnitTask[LLMRequest, PrefilledPrompt]):
    """Publishes keys and values of zero at once, for the prompt of any model, and no first token.

    They are the input of decode executors that are measured alone.
    """

    executor = "prefill_source"


class SplitSettings(LLMSettings):
    """Settings of an executor that saves or loads keys and values."""

    def executor_spec(self) -> ExecutorSpec:
        """Returns the specification. Raises `DefinitionError` for options with which keys and values are not copied."""
        if self.options.tensor_parallel_size > 1:
            raise DefinitionError(
                "tensor_parallel_size: prefill and decode run apart only on one GPU each: remove the option, or use a "
                "path that runs the whole model"
            )
        if self.options.engine_args.get("speculative_config"):
            raise DefinitionError(
                "speculative_config: the KV cache of a draft model is not sent from prefill to decode: remove the "
                "argument"
            )
        return super().executor_spec()


class PrefillTask(SplitSettings, UnitTask[LLMRequest, PrefilledPrompt]):
    """Processes the prompt of a request with a language model on vLLM, and generates at most one token."""

    executor = "prefill"

    def components(self, request: LLMRequest) -> frozenset[str]:
        return frozenset({"llm:prefill"}) | encoders(request)

    def size(self, request: LLMRequest) -> InputSize:
        return request.size

    def input_source(self) -> PrefillSource:
        return PrefillSource()

    def samples_first(self, request: LLMRequest) -> bool:
        """Returns whether the first token is sampled: whether another executor can continue exactly after it."""
        return self.continues_from_tokens(request) and not request.stop

    def invoke(self, request: LLMRequest) -> PrefilledPrompt:
        return super().invoke(self.with_adapter(request))


class PrefilledRequest(BaseModel):
    """A request whose prompt may have been processed."""

    request: LLMRequest
    kv: Tensor | None = None
    """`PrefilledPrompt.kv` of the same request. Without it, the executor processes the prompt, too."""
    first: Tensor | None = None
    """`PrefilledPrompt.first` of the same request, if it has one. It is read only together with `kv`."""


class DecodeTask(SplitSettings, UnitTask[PrefilledRequest, ChatResponse]):
    """Generates the tokens of a response with a language model on vLLM, for chats and completions."""

    executor = "decode"

    def components(self, request: PrefilledRequest) -> frozenset[str]:
        if request.kv is None:
            return frozenset({"llm"}) | encoders(request.request)
        return frozenset({"llm:decode"})

    def size(self, request: PrefilledRequest) -> InputSize:
        return request.request.size

    def continues(self, request: PrefilledRequest) -> bool:
        return self.can_continue(request.request)

    def invoke(self, request: PrefilledRequest) -> ChatResponse:
        return super().invoke(request.model_copy(update={"request": self.with_adapter(request.request)}))


class PrefillDecodeChat(Chat):
    """Runs a language model whose prefill, with the encoding of media, and decode run in different executors [C §2].

    The prefill executor generates the first token where another executor can continue exactly. For other requests, the
    decode executor computes it from the last token of the prompt: every request gives the same response as on one
    executor. The decode executor also serves whole requests, which need facts about their prompt.
    """

    with_enc: bool = True
    """See `LLMTask.with_enc`."""
    split_prefill: bool = True
    """Whether prompts are processed by prefill executors. If not, decode executors serve whole requests: with another
    path that has prefill executors, these are the same."""
    decode_options: EngineOptions | None = None
    """Options of the decode executor. By default, `options`, which are those of the prefill executor."""

    def post_init(self) -> None:
        names = type(self).model_fields.keys() - {"split_prefill", "decode_options"}
        settings = {name: getattr(self, name) for name in names}
        self.prefill = PrefillTask(**settings) if self.split_prefill else None
        if self.decode_options is not None:
            _check_equal_caches(self.options, self.decode_options)
            settings["options"] = self.decode_options
        self.decode = DecodeTask(**settings)

    def invoke(self, request: LLMRequest, embeddings: Sequence[Embeddings | None] = ()) -> ChatResponse:
        request = with_embeddings(request, embeddings)
        needs_prompt = request.prompt_only or request.prompt_logprobs is not None or request.token_limit == 0
        if self.prefill is None or needs_prompt:
            return self.decode.invoke(PrefilledRequest(request=request))
        prompt = self.prefill.invoke(request)
        first = prompt.first if self.prefill.samples_first(request) else None
        return self.decode.invoke(PrefilledRequest(request=request, kv=prompt.kv, first=first))


class PrefillDecodeMllm(Mllm):
    """Runs a multimodal language model whose prefill and decode run in different executors, with or without a separate
    encoder."""

    split_prefill: bool = True
    """See `PrefillDecodeChat.split_prefill`."""
    decode_options: EngineOptions | None = None
    """See `PrefillDecodeChat.decode_options`."""

    def language_model(self, **settings: Any) -> LanguageModel:
        return PrefillDecodeChat(**settings, split_prefill=self.split_prefill, decode_options=self.decode_options)


def _check_equal_caches(prefill: EngineOptions, decode: EngineOptions) -> None:
    """Raises `DefinitionError` with the first option that would make the keys and values unequal, or the requests that
    the executors accept."""
    options = {name: (getattr(prefill, name), getattr(decode, name)) for name in EngineOptions.model_fields}
    arguments = {*prefill.engine_args, *decode.engine_args}
    compared = {
        **{name: values for name, values in options.items() if name not in FREE_OPTIONS},
        **{
            name: (prefill.engine_args.get(name), decode.engine_args.get(name))
            for name in sorted(arguments - FREE_ARGUMENTS)
        },
    }
    for name, (first, second) in compared.items():
        if first != second:
            raise DefinitionError(
                f"{name}: is {first!r} for prefill and {second!r} for decode, whose KV caches must be of one shape: "
                "set it for both"
            )
