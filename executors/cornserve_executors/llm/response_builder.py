"""Builds a response from vLLM's outputs.

vLLM returns many small outputs for a streamed response, and otherwise a single output.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vllm import RequestOutput
from vllm.logprobs import PromptLogprobs as VllmPromptLogprobs

from cornserve_executors.llm.choice_builder import ChoiceBuilder
from cornserve_executors.llm.logprobs import prompt_logprobs, token_logprobs
from cornserve_executors.llm.prompt_renderer import RenderedRequest
from cornserve_tasklib.chat_response import ChatChunk, ChatResponse, PromptLogprobs, TokenLogprobs, Usage
from cornserve_tasklib.completion import CompletionRequest


class ResponseBuilder:
    """
    Args:
        cached_tokens: the cached tokens of a prompt that another engine has processed.
        repeated: the chunks that another executor has sent of the response, which is generated again.
    """

    def __init__(
        self, rendered: RenderedRequest, cached_tokens: int | None = None, repeated: Sequence[ChatChunk] = ()
    ) -> None:
        self._rendered = rendered
        self._choices = [
            ChoiceBuilder(rendered, index, [chunk for chunk in repeated if chunk.index == index])
            for index in range(rendered.request.n)
        ]
        request = rendered.request
        self._to_echo = set(range(request.n)) if isinstance(request, CompletionRequest) and request.echo else set()
        """Indices of the choices that have not echoed the prompt yet."""
        self._prompt_logprobs: VllmPromptLogprobs | None = None
        self._echoed_logprobs: list[TokenLogprobs] | None = None
        self._cached_tokens = cached_tokens
        """The number of cached tokens. By default, the first output states it: further choices share its prompt."""

    def add_output(self, output: RequestOutput) -> Iterator[ChatChunk]:
        """Adds an output and yields the new chunks. Raises `NotRepeatedError`."""
        if self._cached_tokens is None:
            self._cached_tokens = output.num_cached_tokens
        if output.prompt_logprobs and not self._prompt_logprobs:
            # vLLM omits the log probabilities of a streamed choice if its first chunk arrives together with a later
            # chunk of another choice.
            self._prompt_logprobs = output.prompt_logprobs
            self._echoed_logprobs = self._convert_logprobs(output.prompt_logprobs)
        for completion in output.outputs:
            choice = self._choices[completion.index]
            if completion.index in self._to_echo:
                self._to_echo.remove(completion.index)
                yield choice.append(self._echo(completion.index))
            chunk = choice.parse_output(completion)
            if self._rendered.request.token_limit != 0:
                yield choice.append(chunk)

    def _echo(self, index: int) -> ChatChunk:
        return ChatChunk(text=self._rendered.prompt_text, index=index, logprobs=self._echoed_logprobs)

    def _convert_logprobs(self, positions: VllmPromptLogprobs) -> list[TokenLogprobs] | None:
        request, tokenizer = self._rendered.request, self._rendered.tokenizer
        if not isinstance(request, CompletionRequest) or not request.echo or request.logprobs is None:
            return None
        return token_logprobs(self._rendered.prompt_tokens, positions, tokenizer, request.logprobs)

    @property
    def cached_tokens(self) -> int:
        return self._cached_tokens or 0

    def continued(self) -> RenderedRequest | None:
        """Returns the inputs with which another executor continues exactly after the chunks of the only choice, if it
        can."""
        (choice,) = self._choices
        return self._rendered.continued_exactly(choice.chunks)

    def finish_at_limit(self) -> None:
        """Finishes all choices, because the delivered chunks already have the maximum number of tokens."""
        for choice in self._choices:
            choice.finish_at_limit()

    def build(self) -> ChatResponse:
        first, *further = [choice.build() for choice in self._choices]
        tokens = sum(len(choice.token_ids) for choice in (first, *further))
        prompt_tokens = len(self._rendered.prompt_tokens)
        # A continued response has delivered tokens after the prompt, which may be cached too.
        cached = min(self._cached_tokens or 0, prompt_tokens)
        usage = Usage(prompt_tokens=prompt_tokens, completion_tokens=tokens, cached_tokens=cached)
        return ChatResponse(
            **dict(first), usage=usage, prompt_logprobs=self._requested_prompt_logprobs(), further=further
        )

    def _requested_prompt_logprobs(self) -> PromptLogprobs | None:
        if self._rendered.request.prompt_logprobs is None or self._prompt_logprobs is None:
            return None
        return prompt_logprobs(self._prompt_logprobs, self._rendered.tokenizer)
