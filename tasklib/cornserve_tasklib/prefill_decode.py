"""Language models whose prefill and decode run in different executors."""

from __future__ import annotations

from pydantic import BaseModel

from cornserve.task import Output, Task, Tensor, UnitTask
from cornserve_policies.input_size import InputSize
from cornserve_tasklib.chat_response import ChatResponse
from cornserve_tasklib.engine import EngineOptions
from cornserve_tasklib.llm import LLMRequest, LLMSettings


class PrefilledPrompt(Output):
    """A prompt that a language model has processed."""

    kv: Tensor = Tensor()
    """The keys and values of its tokens. Pass it to one `DecodeTask`, with the same request: its memory is free as soon
    as the task has copied it, and the prompt is processed again for a later one."""


class PrefillTask(LLMSettings, UnitTask[LLMRequest, PrefilledPrompt]):
    """Processes the prompt of a request with a language model on vLLM, and generates no token."""

    executor = "prefill"

    def components(self, request: LLMRequest) -> frozenset[str]:
        return frozenset({"llm"})

    def size(self, request: LLMRequest) -> InputSize:
        return request.size

    def invoke(self, request: LLMRequest) -> PrefilledPrompt:
        return super().invoke(request if self.lora is None else request.with_lora(self.lora))


class PrefilledRequest(BaseModel):
    """A request whose prompt may have been processed."""

    request: LLMRequest
    kv: Tensor | None = None
    """`PrefilledPrompt.kv` of the same request. Without it, the executor processes the prompt, too."""


class DecodeTask(LLMSettings, UnitTask[PrefilledRequest, ChatResponse]):
    """Generates the tokens of a response with a language model on vLLM, for chats and completions."""

    executor = "decode"

    def components(self, request: PrefilledRequest) -> frozenset[str]:
        return frozenset({"llm"})

    def size(self, request: PrefilledRequest) -> InputSize:
        return request.request.size

    def continues(self, request: PrefilledRequest) -> bool:
        return self.reasoning_parser is None and request.request.can_be_continued

    def invoke(self, request: PrefilledRequest) -> ChatResponse:
        if self.lora is not None:
            request = request.model_copy(update={"request": request.request.with_lora(self.lora)})
        return super().invoke(request)


class PrefillDecodeChat(Task[LLMRequest, ChatResponse]):
    """Runs a language model whose prefill, with the encoding of media, and decode run in different executors [C §2].

    The decode executor computes the first token, from the last token of the prompt, so that every request gives the
    same response as on one executor. It also serves whole requests, which need facts about their prompt.
    """

    model_id: str
    """A Hugging Face id, or the path of a model directory."""
    revision: str | None = None
    """See `LLMTask.revision`."""
    tool_parser: str | None = None
    """See `LLMTask.tool_parser`."""
    reasoning_parser: str | None = None
    """See `LLMTask.reasoning_parser`."""
    lora: str | None = None
    """See `LLMTask.lora`."""
    options: EngineOptions = EngineOptions()
    """Options of both engines."""

    def post_init(self) -> None:
        settings = {name: getattr(self, name) for name in type(self).model_fields}
        self.prefill = PrefillTask(**settings)
        self.decode = DecodeTask(**settings)

    def invoke(self, request: LLMRequest) -> ChatResponse:
        if request.prompt_only or request.prompt_logprobs is not None or request.token_limit == 0:
            return self.decode.invoke(PrefilledRequest(request=request))
        return self.decode.invoke(PrefilledRequest(request=request, kv=self.prefill.invoke(request).kv))
