"""What runs in the executor's process."""

from __future__ import annotations

import asyncio

from pydantic_core import to_json

from cornserve_echo.task import EchoRequest, EchoResponse, EchoTask
from cornserve_executors.base import Call, Executor
from cornserve_executors.base.executor import Report


class EchoExecutor(Executor[EchoTask, EchoRequest, EchoResponse]):
    continues = True
    _engine: asyncio.subprocess.Process | None = None

    async def start(self, report: Report) -> None:
        report("thinking of words")
        await asyncio.sleep(self.config.start_seconds)
        if self.config.fail_start:
            raise RuntimeError(self.config.fail_start)
        if self.config.engine:
            self._engine = await asyncio.create_subprocess_exec("sleep", "infinity")

    async def death(self) -> str:
        return await super().death() if self._engine is None else f"it ended with status {await self._engine.wait()}"

    async def stop(self) -> None:
        if self._engine is not None and self._engine.returncode is None:
            self._engine.kill()
            await self._engine.wait()

    async def invoke(self, request: EchoRequest, call: Call) -> EchoResponse:
        text = self.config.prefix + request.text
        words = text.split(" ")
        for word in words[len(call.delivered.get("words", [])) :]:
            if request.seconds:
                await asyncio.sleep(request.seconds / len(words))
            if call.wants("words"):
                await call.send("words", to_json(word))
        if request.fail is not None:
            raise RuntimeError(request.fail)
        return EchoResponse(text=text, words_sent=len(words))
