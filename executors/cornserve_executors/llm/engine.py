"""vLLM's asynchronous engine: conversations in, answers out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any

from pydantic import ValidationError
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.exceptions import VLLMClientError
from vllm.renderers.chat_utils import ChatTemplateResolutionError
from vllm.usage.usage_lib import UsageContext
from vllm.v1.engine import exceptions as vllm_exceptions
from vllm.v1.engine.async_llm import AsyncLLM

from cornserve_executors.base import EngineDeadError, InvalidRequestError, StartError
from cornserve_executors.llm import settings
from cornserve_executors.llm.answer import Answer
from cornserve_executors.llm.prompt import render
from cornserve_executors.llm.sampling import sampling_params
from cornserve_executors.llm.stats import Stats
from cornserve_tasklib.chat import ChatRequest, ChatResponse
from cornserve_tasklib.llm import LLMTask

DEAD = "vLLM's EngineCore process is gone"


class Engine:
    def __init__(self, config: LLMTask) -> None:
        """Loads the model. Blocks until that is done; any thread will do."""
        self._stats = Stats()
        vllm_config = _vllm_config(config)
        try:
            self._vllm = AsyncLLM.from_vllm_config(
                vllm_config, disable_log_stats=True, stat_loggers=[lambda *_: self._stats]
            )
        except RuntimeError as error:  # The engine's process has logged its own.
            raise StartError(f"vLLM's engine did not start: {error}") from error

    async def chat(
        self, request: ChatRequest, id: str, send: Callable[[bytes], Awaitable[None]] | None = None
    ) -> ChatResponse:
        """Answers, and hands each piece of the answer to `send`. Cancelling it stops the generation at once."""
        try:
            prompt = await render(self._vllm.renderer, request)
            context = self._vllm.model_config.max_model_len
            sampling = sampling_params(request, len(prompt["prompt_token_ids"]), context, stream=send is not None)
            answer = Answer()
            async with aclosing(self._vllm.generate(prompt, sampling, id)) as outputs:
                async for output in outputs:
                    chunk = answer.add(output)
                    if send is not None:
                        await send(chunk.model_dump_json().encode())
            return answer.response()
        except (VLLMClientError, ChatTemplateResolutionError) as error:
            raise InvalidRequestError(error.args[0]) from error
        except vllm_exceptions.EngineDeadError as error:
            raise EngineDeadError(DEAD) from error

    async def death(self) -> str:
        """Returns, with the reason, when the engine has died. Its output handler, which the first request has started,
        ends only then."""
        await asyncio.wait({self._vllm.output_handler})
        return DEAD

    def figures(self) -> Mapping[str, float]:
        return self._stats.figures()

    def shutdown(self) -> None:
        """Ends the engine's processes. Blocks for seconds."""
        self._vllm.shutdown()


def _vllm_config(config: LLMTask) -> Any:
    args = AsyncEngineArgs(**settings.engine_args(config))
    try:
        return args.create_engine_config(UsageContext.ENGINE_CONTEXT)
    except ValidationError as error:
        raise StartError(f"vLLM refuses {config.model_id}: {_first_sentence(error)}") from error


def _first_sentence(error: ValidationError) -> str:
    """What follows it in vLLM's messages is a list of hundreds of names, or advice about options of its own."""
    message = error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
    return message.split(". ")[0].splitlines()[0]
