"""The executors of `NoteTask` and `ReadTask`."""

from __future__ import annotations

import asyncio

from cornserve_echo.notes import Note, NoteRequest, NoteTask, ReadRequest, ReadTask
from cornserve_echo.task import EchoResponse
from cornserve_executors.base import Executor, InvocationContext


class NoteExecutor(Executor[NoteTask, NoteRequest, Note]):
    async def invoke(self, request: NoteRequest, context: InvocationContext) -> Note:
        text = request.text.encode()
        text += b" " * (request.nbytes - len(text))
        slot = await context.allocate("note", len(text))
        await asyncio.sleep(request.seconds)
        if request.fail is not None:
            raise RuntimeError(request.fail)
        slot.buffer[:] = text
        slot.publish("uint8", (len(text),))
        return Note(words=len(request.text.split()))


class ReadExecutor(Executor[ReadTask, ReadRequest, EchoResponse]):
    async def invoke(self, request: ReadRequest, context: InvocationContext) -> EchoResponse:
        notes = await context.receive_all(request.notes)
        await asyncio.sleep(request.seconds)
        texts = [bytes(note.view).decode().rstrip() for note in notes]
        for note in notes:
            note.check()  # raises if the memory was reused while it was read
        text = " ".join(texts)
        return EchoResponse(text=text, words_sent=len(text.split()))
