"""Requests in, answers out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing

from vllm.config.structured_outputs import StructuredOutputsConfig

from cornserve_executors.llm import trace
from cornserve_executors.llm.answer import Answer
from cornserve_executors.llm.generation import Generations
from cornserve_executors.llm.parsing import check_parsers
from cornserve_executors.vllm import settings
from cornserve_executors.vllm.engine import VllmEngine, explained
from cornserve_tasklib.answer import ChatChunk, ChatResponse
from cornserve_tasklib.llm import LLMRequest, LLMTask


class Engine(VllmEngine):
    def __init__(self, config: LLMTask) -> None:
        check_parsers(config)
        args = {
            # The engine constrains an answer's form only where the reasoning has ended.
            "reasoning_parser": config.reasoning_parser or "",
            # By default the first constrained request chooses it for all that follow, and not each can do all.
            "structured_outputs_config": StructuredOutputsConfig(backend="xgrammar"),
        }
        super().__init__(settings.engine_args(config) | args)
        self._generations = Generations(self._vllm.model_config, self._vllm.renderer, config)

    async def generate(
        self,
        request: LLMRequest,
        id: str,
        send: Callable[[bytes], Awaitable[None]] | None = None,
        delivered: Sequence[ChatChunk] = (),
    ) -> ChatResponse:
        """Answers, and hands each piece of the answer to `send`. Cancelling it stops the generation at once.

        Args:
            delivered: what another executor has sent of this answer before it died; `send` gets what follows.
        """
        with explained():
            generation = await self._generations.of(request, stream=send is not None)
            if delivered:
                generation = generation.after(delivered)
            answer = Answer(generation)
            prompt, sampling = generation.inputs()
            if sampling.max_tokens == 0:
                answer.end()
                return answer.response()
            outputs = self._vllm.generate(prompt, sampling, id, **generation.reasoning)
            async with aclosing(outputs):
                async for output in outputs:
                    for chunk in answer.add(output):
                        if send is not None:
                            await send(chunk.__pydantic_serializer__.to_json(chunk, exclude_defaults=True))
                    if output.finished:
                        trace.tell(output)
            return answer.response()
