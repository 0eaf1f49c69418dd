"""The life of a language executor. vLLM is imported and loaded in a thread, so that callers can watch it start."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Mapping
from typing import TYPE_CHECKING

from cornserve_executors.base import Call, Executor, InvalidRequestError, StartError
from cornserve_executors.base.executor import Report
from cornserve_executors.llm import settings
from cornserve_tasklib.chat import ChatRequest, ChatResponse
from cornserve_tasklib.llm import LLMTask

if TYPE_CHECKING:
    from cornserve_executors.llm.engine import Engine


class LLMExecutor(Executor[LLMTask, ChatRequest, ChatResponse]):
    _engine: Engine
    _loading: asyncio.Task[Engine] | None = None

    async def start(self, report: Report) -> None:
        settings.check(self.config)
        settings.prepare_environment()
        report("importing vLLM")
        engine_type = await asyncio.to_thread(_import_engine)
        report("loading weights")
        self._loading = asyncio.create_task(asyncio.to_thread(engine_type, self.config))
        self._engine = await asyncio.shield(self._loading)
        report("warming up")
        await self._warm_up()

    async def _warm_up(self) -> None:
        """The first request pays for lazy set-up all over vLLM, and shows whether the model can chat at all."""
        try:
            await self._engine.chat(ChatRequest.ask("Hello", max_tokens=2, temperature=0), "warm-up")
        except InvalidRequestError as error:
            raise StartError(f"{self.config.model_id} cannot answer a first request: {error}") from error

    async def invoke(self, request: ChatRequest, call: Call) -> ChatResponse:
        async def send(chunk: bytes) -> None:
            await call.send("chunks", chunk)

        return await self._engine.chat(request, call.id, send if call.wants("chunks") else None)

    async def death(self) -> str:
        return await self._engine.death()

    def metrics(self) -> Mapping[str, float]:
        return self._engine.figures() if hasattr(self, "_engine") else {}

    async def stop(self) -> None:
        if self._loading is None:
            return
        while not self._loading.done():
            # vLLM cannot be told to stop loading, but it gives up when its engine process, once started, is gone.
            for process in multiprocessing.active_children():
                process.kill()
            await asyncio.wait({self._loading}, timeout=0.1)
        if self._loading.exception() is None:
            self._loading.result().shutdown()


def _import_engine() -> type[Engine]:
    from cornserve_executors.llm.engine import Engine

    return Engine
