"""The consumer's end of the line to one producing process."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable
from contextvars import Context
from typing import Final

from cornserve.concurrency import run_unless
from cornserve.observe.redaction import redacted_traceback
from cornserve.transport.ends import BEATS_PER_LEASE, CONSUMER, silence
from cornserve.transport.intake import Intake, Offer
from cornserve.v1 import transfer_pb2 as pb
from cornserve.wire.connection import MessageConnection

log = logging.getLogger(__name__)

PATIENCE_SECONDS: Final = 15.0
"""How long a producer may be silent, or not answer at all."""

_Line = MessageConnection[pb.TransferCommand, pb.TransferEvent]


class Peer:
    """Everything that is subscribed at a process goes over one line; what is held goes when it breaks."""

    def __init__(self, endpoint: str, lease_seconds: float, on_lost: Callable[[Peer], None]) -> None:
        self.endpoint = endpoint
        self.producer: pb.Producer | None = None
        """Who answers there, before anything is announced."""
        self._line: _Line = MessageConnection(CONSUMER, self._read)
        self._intakes: dict[int, Intake] = {}
        self._numbers = itertools.count(1)
        self._beat_seconds = lease_seconds / BEATS_PER_LEASE
        self._on_lost = on_lost
        # It outlives the request in which it may be made, whose name is not to stand in its logs.
        self._connection = asyncio.create_task(self._run(), name=f"transfer {endpoint}", context=Context())

    @property
    def host(self) -> str:
        return self.endpoint.rpartition(":")[0]

    def subscribe(self, intake: Intake) -> _RemoteLink:
        number = next(self._numbers)
        self._intakes[number] = intake
        source = intake.source
        self._line.send(
            pb.TransferCommand(
                subscribe=pb.Subscribe(
                    subscription=number,
                    request_id=source.request_id,
                    invocation=source.invocation,
                    attempt=source.attempt,
                    output=source.output,
                )
            )
        )
        return _RemoteLink(number, self._intakes, self._line)

    async def close(self) -> None:
        self._connection.cancel()
        await asyncio.gather(self._connection, return_exceptions=True)

    async def _run(self) -> None:
        reason = "this process ends"
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self._line.connect(self.endpoint)
            reason = await self._end_of_line()
        except TimeoutError:
            reason = "there is no connection to its process: nobody answers"
        except OSError as error:
            reason = f"there is no connection to its process: {error}"
        finally:
            self._line.abort(reason)
            self._on_lost(self)
            for intake in self._intakes.values():
                intake.lose(reason)
            await self._line.wait_closed()

    async def _end_of_line(self) -> str:
        beats = max(2, round(PATIENCE_SECONDS / self._beat_seconds))
        silent = silence(self._line, pb.TransferCommand(alive=pb.Alive()), self._beat_seconds, beats)
        if await run_unless(self._line.closed, silent):
            return f"its process hangs: nothing was heard on the connection for {beats * self._beat_seconds:g} s"
        return f"the connection to its process is over: {await self._line.wait_closed()}"

    def _read(self, event: pb.TransferEvent | None) -> None:
        if event is None:
            self._line.abort("its process has ended")
            return
        try:
            self._take(event)
        except Exception as error:
            log.error("cannot take what the producer at %s sent:\n%s", self.endpoint, redacted_traceback(error))
            self._line.abort(f"cannot take what its process sent: {error!r}")

    def _take(self, event: pb.TransferEvent) -> None:
        match event.WhichOneof("kind"):
            case "producer":
                self.producer = event.producer
            case "announcement" if intake := self._intakes.get(event.announcement.subscription):
                intake.offer(Offer(event.announcement.chunk, event.announcement.tensor))
            case "end" if intake := self._intakes.get(event.end.subscription):
                intake.complete()
            case "recall" if intake := self._intakes.get(event.recall.subscription):
                intake.recall()
            case "lost" if intake := self._intakes.get(event.lost.subscription):
                intake.lose(event.lost.reason)


class _RemoteLink:
    def __init__(self, number: int, intakes: dict[int, Intake], line: _Line) -> None:
        self._number = number
        self._intakes = intakes
        self._line = line

    def release(self, chunk: int) -> None:
        self._line.send(pb.TransferCommand(release=pb.ReleaseChunk(subscription=self._number, chunk=chunk)))

    def unsubscribe(self) -> None:
        if self._intakes.pop(self._number, None) is not None:
            self._line.send(pb.TransferCommand(unsubscribe=pb.Unsubscribe(subscription=self._number)))
