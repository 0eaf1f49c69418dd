"""The executor of `EchoTask`."""

from __future__ import annotations

import asyncio

from pydantic_core import to_json

from cornserve_echo.task import EchoRequest, EchoResponse, EchoTask
from cornserve_executors.base import Executor, HandedOverError, InvocationContext, ProgressReporter


class EchoExecutor(Executor[EchoTask, EchoRequest, EchoResponse]):
    continues = True
    _engine: asyncio.subprocess.Process | None = None

    async def start(self, report_progress: ProgressReporter) -> None:
        report_progress("loading words")
        await asyncio.sleep(self.config.start_seconds)
        if self.config.fail_start:
            raise RuntimeError(self.config.fail_start)
        if self.config.engine:
            self._engine = await asyncio.create_subprocess_exec("sleep", "infinity")

    async def wait_engine_death(self) -> str:
        if self._engine is None:
            return await super().wait_engine_death()
        return f"it exited with status {await self._engine.wait()}"

    async def stop(self) -> None:
        if self._engine is not None and self._engine.returncode is None:
            self._engine.kill()
            await self._engine.wait()

    async def invoke(self, request: EchoRequest, context: InvocationContext) -> EchoResponse:
        text = self.config.prefix + request.text
        words = text.split(" ")
        for word in words[len(context.delivered.get("words", [])) :]:
            if request.seconds:
                await asyncio.sleep(request.seconds / len(words))
            if context.is_requested("words"):
                await context.send("words", to_json(word))
                if context.wants_hand_over():
                    raise HandedOverError
        if request.fail is not None:
            raise RuntimeError(request.fail)
        return EchoResponse(text=text, words_sent=len(words))
