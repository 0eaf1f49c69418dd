"""Runs the calls with side effects of an app in threads."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Final

from cornserve.app_host.prints import PrintCapture
from cornserve.task.side_effects import SideEffect
from cornserve.v1 import app_host_pb2 as pb

MAX_THREADS: Final = 16
"""The number of calls of an app that run concurrently. Further ones wait."""


class SideEffectRunner:
    """Runs calls.

    Args:
        source: the directory of the app's source in stack traces.
        logs_messages: whether tracebacks have the messages of errors.
    """

    def __init__(self, prints: PrintCapture, source: str, logs_messages: bool) -> None:
        self._prints = prints
        self._source = source
        self._logs_messages = logs_messages
        self._threads = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="side-effect")

    async def run(self, call: int, effect: SideEffect, deadline: float) -> pb.HostReply:
        """Returns the reply to a command, with the result and the printed lines. If cancelled, a call that waits for a
        thread never starts, and one that runs goes on.

        Args:
            deadline: the time of the monotonic clock at which the caller gives up. Later, the call never starts.
        """
        running = self._threads.submit(self._run, call, effect, deadline)
        expiry = asyncio.get_running_loop().call_at(deadline, running.cancel)
        try:
            return await asyncio.wrap_future(running)
        finally:
            expiry.cancel()

    def _run(self, call: int, effect: SideEffect, deadline: float) -> pb.HostReply:
        reply = pb.HostReply(call=call)
        if monotonic() >= deadline:  # The event loop may have been busy.
            reply.side_effect.error = "no thread was free in time"
            return reply
        with self._prints.collected(reply):
            result = effect.run(self._source, logs_messages=self._logs_messages)
        reply.side_effect.CopyFrom(
            pb.SideEffectResult(value=result.value, error=result.error, traceback=result.traceback)
        )
        return reply
