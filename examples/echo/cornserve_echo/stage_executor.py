"""The executor of `StageTask`."""

from __future__ import annotations

import asyncio

from cornserve_echo.stages import StageRequest, StageResult, StageTask
from cornserve_executors.base import Executor, InvalidRequestError, InvocationContext


class StageExecutor(Executor[StageTask, StageRequest, StageResult]):
    """Serves `StageTask.concurrency` requests at a time, in order of arrival."""

    def __init__(self, config: StageTask) -> None:
        super().__init__(config)
        self._servers: asyncio.Queue[float] = asyncio.Queue()
        """The times, of the event loop's clock, from which on each idle server is free."""
        for _ in range(config.concurrency):
            self._servers.put_nowait(0.0)

    async def invoke(self, request: StageRequest, context: InvocationContext) -> StageResult:
        try:
            seconds = self.config.service_time(request)
        except ValueError as error:
            raise InvalidRequestError(str(error)) from error
        inputs = await context.receive_all(request.inputs)
        for view in inputs:
            view.check()
        await self._serve(seconds)
        slot = await context.allocate("result", 1)
        slot.buffer[:] = b"\0"
        slot.publish("uint8", (1,))
        return StageResult(text=request.text, seconds=seconds)

    async def _serve(self, seconds: float) -> None:
        """Waits for a server, and occupies it.

        A service begins when the previous one should have ended, so late wake-ups of the event loop do not add up.
        """
        loop = asyncio.get_running_loop()
        arrival = loop.time()
        end = max(arrival, await self._servers.get()) + seconds
        try:
            await asyncio.sleep(end - loop.time())
        finally:
            self._servers.put_nowait(min(end, loop.time()))
