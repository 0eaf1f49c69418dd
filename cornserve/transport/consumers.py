"""The producer's end of the lines over which other processes consume."""

from __future__ import annotations

import asyncio
import logging
from contextvars import Context

from cornserve.concurrency import run_unless
from cornserve.observe.redaction import redacted_traceback
from cornserve.transport.board import Board, Name
from cornserve.transport.ends import BEATS_PER_LEASE, PRODUCER, silence
from cornserve.transport.meter import Meter
from cornserve.transport.publication import Subscription
from cornserve.v1 import transfer_pb2 as pb
from cornserve.wire.connection import MessageConnection

log = logging.getLogger(__name__)

_Line = MessageConnection[pb.TransferEvent, pb.TransferCommand]


class Consumers:
    """Serves each consuming process until it leaves, or is silent for so long that it counts as dead.

    Args:
        producer: who we are; it is the first that a consumer hears.
        lease_seconds: how long a consumer may be silent.
    """

    def __init__(self, board: Board, producer: pb.Producer, lease_seconds: float, meter: Meter) -> None:
        self._board = board
        self._producer = producer
        self._lease_seconds = lease_seconds
        self._meter = meter
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def answer(self) -> _Line:
        """Our end of a line that somebody opens."""
        process = _Process(self._board)
        if self._is_closed:
            process.line.abort("this process ends")
            return process.line
        process.line.send(pb.TransferEvent(producer=self._producer))
        task = asyncio.create_task(self._serve(process), context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return process.line

    async def close(self) -> None:
        """Leaves all of them, and who comes later, too."""
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, process: _Process) -> None:
        """Until it leaves, or has hung for too long."""
        alive = pb.TransferEvent(alive=pb.Alive())
        silent = silence(process.line, alive, self._lease_seconds / BEATS_PER_LEASE, BEATS_PER_LEASE)
        try:
            if await run_unless(process.line.closed, silent):
                self._meter.expired_leases += 1
                log.warning("a consumer has been silent for %g s: its leases are over", self._lease_seconds)
        finally:
            process.line.abort("its producer has left")
            process.forget_all()
            await process.line.wait_closed()


class _Process:
    """What one consuming process has subscribed to."""

    def __init__(self, board: Board) -> None:
        self.line: _Line = MessageConnection(PRODUCER, self._read)
        self._board = board
        self._subscriptions: dict[int, tuple[Name, Subscription]] = {}

    def forget_all(self) -> None:
        while self._subscriptions:
            _, subscribed = self._subscriptions.popitem()
            self._board.unsubscribe(*subscribed)

    def _read(self, command: pb.TransferCommand | None) -> None:
        if command is None:
            self.line.abort("the consumer has ended")
            return
        try:
            self._take(command)
        except Exception as error:
            log.error("cannot take what a consumer sent:\n%s", redacted_traceback(error))
            self.line.abort("the consumer sent what cannot be taken")

    def _take(self, command: pb.TransferCommand) -> None:
        match command.WhichOneof("kind"):
            case "subscribe":
                wanted = command.subscribe
                name = Name(wanted.request_id, wanted.invocation, wanted.attempt)
                subscription = Subscription(_Remote(wanted.subscription, self.line))
                self._subscriptions[wanted.subscription] = name, subscription
                self._board.subscribe(name, wanted.output, subscription)
            case "release" if command.release.subscription in self._subscriptions:
                _, subscription = self._subscriptions[command.release.subscription]
                subscription.release(command.release.chunk)
            case "unsubscribe" if command.unsubscribe.subscription in self._subscriptions:
                self._board.unsubscribe(*self._subscriptions.pop(command.unsubscribe.subscription))


class _Remote:
    """A consumer at the other end."""

    def __init__(self, subscription: int, line: _Line) -> None:
        self._subscription = subscription
        self._line = line

    def on_tensor(self, chunk: int, tensor: pb.TensorRef) -> None:
        announcement = pb.Announcement(subscription=self._subscription, chunk=chunk, tensor=tensor)
        self._line.send(pb.TransferEvent(announcement=announcement))

    def on_end(self) -> None:
        self._line.send(pb.TransferEvent(end=pb.StreamEnd(subscription=self._subscription)))

    def on_recall(self) -> None:
        self._line.send(pb.TransferEvent(recall=pb.Recall(subscription=self._subscription)))

    def on_lost(self, reason: str) -> None:
        self._line.send(pb.TransferEvent(lost=pb.Lost(subscription=self._subscription, reason=reason)))
