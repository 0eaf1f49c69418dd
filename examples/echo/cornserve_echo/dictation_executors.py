"""The executors of `SpeakTask` and `WriteTask`."""

from __future__ import annotations

import asyncio

from pydantic_core import to_json

from cornserve_echo.dictation import SpeakRequest, SpeakTask, Speech, WriteRequest, WriteTask, Written
from cornserve_executors.base import Executor, InvocationContext


class SpeakExecutor(Executor[SpeakTask, SpeakRequest, Speech]):
    continues = True

    async def invoke(self, request: SpeakRequest, context: InvocationContext) -> Speech:
        words = request.text.split()
        delivered = len(context.delivered.get("spoken", []))
        for number, word in enumerate(words):
            await asyncio.sleep(request.seconds)
            data = word.encode()
            await context.publish("words", data, "uint8", (len(data),))
            if context.is_requested("spoken") and number >= delivered:
                await context.send("spoken", to_json(word))
        return Speech(count=len(words))


class WriteExecutor(Executor[WriteTask, WriteRequest, Written]):
    async def invoke(self, request: WriteRequest, context: InvocationContext) -> Written:
        words: list[str] = []
        async for view in context.receive_stream(request.words):
            data = bytes(view.view)
            view.check()  # raises if the memory was reused while it was read
            words.append(data.decode())
            await asyncio.sleep(request.seconds)
            await context.publish("again", data, view.dtype, view.shape)
            if context.is_requested("written"):
                await context.send("written", to_json(words[-1]))
            if len(words) == request.limit:
                break
        return Written(text=" ".join(words))
