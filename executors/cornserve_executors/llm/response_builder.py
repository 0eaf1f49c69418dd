"""An answer that grows by vLLM's outputs: many small ones when it is streamed, else one."""

from __future__ import annotations

from collections.abc import Iterator

from vllm import RequestOutput
from vllm.logprobs import PromptLogprobs

from cornserve_executors.llm.choice_builder import ChoiceBuilder
from cornserve_executors.llm.logprobs import token_logprobs
from cornserve_executors.llm.prompt_renderer import RenderedRequest
from cornserve_tasklib.completion import CompletionRequest
from cornserve_tasklib.response import ChatChunk, ChatResponse, TokenLogprobs, Usage


class ResponseBuilder:
    def __init__(self, generation: RenderedRequest) -> None:
        self._generation = generation
        self._choices = [ChoiceBuilder(generation, index) for index in range(generation.request.n)]
        request = generation.request
        self._to_echo = set(range(request.n)) if isinstance(request, CompletionRequest) and request.echo else set()
        self._prompt_logprobs: list[TokenLogprobs] | None = None

    def add(self, output: RequestOutput) -> Iterator[ChatChunk]:
        """Takes the next output in, and gives what is new."""
        if self._to_echo and output.prompt_logprobs:
            # A streamed choice that first appears beside a further piece of another one comes without them.
            self._prompt_logprobs = self._prompt_logprobs or self._logprobs(output.prompt_logprobs)
        for completion in output.outputs:
            choice = self._choices[completion.index]
            if completion.index in self._to_echo:
                self._to_echo.remove(completion.index)
                yield choice.add(self._prompt(completion.index))
            chunk = choice.read(completion)
            if self._generation.request.token_limit != 0:
                yield choice.add(chunk)

    def _prompt(self, index: int) -> ChatChunk:
        return ChatChunk(text=self._generation.prompt["prompt"], index=index, logprobs=self._prompt_logprobs)

    def _logprobs(self, of_prompt: PromptLogprobs) -> list[TokenLogprobs]:
        generation = self._generation
        top = generation.sampling.prompt_logprobs or 0
        return token_logprobs(generation.prompt_tokens, of_prompt, generation.tokenizer, top)

    def end(self) -> None:
        """Nothing more may be generated."""
        for choice in self._choices:
            choice.end()

    def response(self) -> ChatResponse:
        first, *further = [choice.whole() for choice in self._choices]
        tokens = sum(len(choice.token_ids) for choice in (first, *further))
        usage = Usage(prompt_tokens=len(self._generation.prompt_tokens), completion_tokens=tokens)
        return ChatResponse(**dict(first), usage=usage, further=further)
