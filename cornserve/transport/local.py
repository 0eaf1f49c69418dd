"""Consumers in the producer's own process: announcements are function calls."""

from __future__ import annotations

from cornserve.transport.board import Board, Name
from cornserve.transport.intake import Intake, Offer
from cornserve.transport.publication import Subscription
from cornserve.v1 import transfer_pb2 as pb


class LocalLink:
    def __init__(self, board: Board, intake: Intake) -> None:
        source = intake.source
        self._board = board
        self._intake = intake
        self._name = Name(source.request_id, source.invocation, source.attempt)
        self._subscription = Subscription(self)
        board.subscribe(self._name, source.output, self._subscription)

    def release(self, chunk: int) -> None:
        self._subscription.release(chunk)

    def unsubscribe(self) -> None:
        self._board.unsubscribe(self._name, self._subscription)

    def on_tensor(self, chunk: int, tensor: pb.TensorRef) -> None:
        self._intake.offer(Offer(chunk, tensor))

    def on_end(self) -> None:
        self._intake.complete()

    def on_recall(self) -> None:
        self._intake.recall()

    def on_lost(self, reason: str) -> None:
        self._intake.lose(reason)
