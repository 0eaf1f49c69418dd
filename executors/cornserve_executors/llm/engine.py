"""Requests in, answers out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

from vllm import RequestOutput
from vllm.config.structured_outputs import StructuredOutputsConfig

from cornserve.transport import TensorView
from cornserve_executors.base import EngineDeadError, InvalidRequestError
from cornserve_executors.llm import trace
from cornserve_executors.llm.connector import EmbeddingsConnector
from cornserve_executors.llm.output_parser import check_parsers
from cornserve_executors.llm.prompt_renderer import PromptRenderer
from cornserve_executors.llm.response_builder import ResponseBuilder
from cornserve_executors.llm.schema_checker import SchemaChecker, request_schemas
from cornserve_executors.llm.worker_extension import WorkerExtension
from cornserve_executors.vllm import settings
from cornserve_executors.vllm.engine import VllmEngine, translate_errors
from cornserve_tasklib.llm import LLMRequest, LLMTask
from cornserve_tasklib.response import ChatChunk, ChatResponse

PROCESSOR_CACHE_GIB = 0.25
"""Of processed images that vLLM keeps, in two processes: they may come again in the next turn of a chat."""

CPU_WORKER = "cornserve_executors.llm.cpu_worker.SeededCPUWorker"
"""Only vLLM's own processes may import it."""

NO_VIDEO_OR_AUDIO = {"video": 0, "audio": 0}
"""Media that nobody can send. vLLM would keep memory free for them."""


class RequestAbortedError(Exception):
    """The engine has ended a request before it was done, and does not say why."""


class LLMEngine(VllmEngine):
    def __init__(self, config: LLMTask) -> None:
        check_parsers(config)
        super().__init__(engine_args(config))
        renderer = self._vllm.renderer
        self._generations = PromptRenderer(self._vllm.model_config, renderer, config)
        self._schemas = SchemaChecker(self._vllm.vllm_config, renderer.tokenizer)

    @property
    def encodes_images(self) -> bool:
        return self._generations.images.encodes

    async def parameter_counts(self) -> dict[str, int]:
        """Of each component of the model, in one of the processes that run it."""
        counts: list[dict[str, int]] = await self._vllm.collective_rpc("parameter_counts")
        return counts[0]

    async def generate(
        self,
        request: LLMRequest,
        id: str,
        send: Callable[[bytes], Awaitable[None]] | None = None,
        delivered: Sequence[ChatChunk] = (),
        received: Sequence[TensorView] = (),
    ) -> ChatResponse:
        """Answers, and hands each piece of the answer to `send`. Cancelling it stops the generation at once.

        Args:
            delivered: what another executor has sent of this answer before it died; `send` gets what follows.
            received: the embeddings of the encoded images, in their order. The engine needs them until this returns.
        """
        async with self._schemas_explained(request):
            generation = await self._generations.of(request, received, stream=send is not None, owner=id)
            if delivered:
                generation = generation.after(delivered)
            answer = ResponseBuilder(generation)
            prompt, sampling = generation.inputs()
            if sampling.max_tokens == 0:
                answer.end()
                return answer.response()
            outputs = self._vllm.generate(prompt, sampling, id, **generation.reasoning)
            async with aclosing(outputs):
                async for output in outputs:
                    _check(output, received)
                    for chunk in answer.add(output):
                        if send is not None:
                            await send(chunk.__pydantic_serializer__.to_json(chunk, exclude_defaults=True))
                    if output.finished:
                        trace.tell(output)
            return answer.response()

    @asynccontextmanager
    async def _schemas_explained(self, request: LLMRequest) -> AsyncIterator[None]:
        """An error that a schema of the request is to blame for names it."""
        try:
            with translate_errors():
                yield
        except EngineDeadError:
            raise
        except Exception as error:
            complaint = await asyncio.to_thread(self._schemas.complaint, request)
            if complaint is None and isinstance(error, RequestAbortedError):
                fields = ", ".join(field for field, _ in request_schemas(request))
                complaint = fields and f"{fields}: the model came to a point from which nothing follows"
            if not complaint:
                raise
            raise InvalidRequestError(complaint) from error


def engine_args(config: LLMTask) -> dict[str, Any]:
    """The arguments of vLLM's `AsyncEngineArgs`. What concerns images does not matter to a model of text."""
    args = settings.engine_args(config) | {
        # The engine constrains an answer's form only where the reasoning has ended.
        "reasoning_parser": config.reasoning_parser or "",
        # By default the first constrained request chooses it for all that follow, and not each can do all.
        "structured_outputs_config": StructuredOutputsConfig(backend="xgrammar"),
        "worker_extension_cls": f"{WorkerExtension.__module__}.{WorkerExtension.__qualname__}",
        # An engine that has an encoder takes encoded images, too.
        "ec_transfer_config": {
            "ec_connector": EmbeddingsConnector.__name__,
            "ec_connector_module_path": EmbeddingsConnector.__module__,
            "ec_role": "ec_consumer",
        },
    }
    if settings.on_cpu():
        args["worker_cls"] = CPU_WORKER
    if config.with_enc:
        return args | {"limit_mm_per_prompt": NO_VIDEO_OR_AUDIO, "mm_processor_cache_gb": PROCESSOR_CACHE_GIB}
    return args | {"language_model_only": True, "mm_processor_cache_gb": 0}


def _check(output: RequestOutput, received: Sequence[TensorView]) -> None:
    """The engine does not say why it gives a request up; if embeddings have been taken back, that is why."""
    if any(completion.finish_reason == "error" for completion in output.outputs):
        for tensor in received:
            tensor.check()
        raise RequestAbortedError("vLLM has given the request up")
