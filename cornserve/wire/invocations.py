"""The two sides of a line over which invocations travel."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from cornserve.v1 import executor_pb2 as pb
from cornserve.wire.line import Side

_GREETING = b"cornserve.v1.Executor\n"


def _request(commands: Iterable[pb.Command]) -> pb.InvokeRequest:
    return pb.InvokeRequest(commands=commands)


def _response(events: Iterable[pb.Event]) -> pb.InvokeResponse:
    return pb.InvokeResponse(events=events)


CALLER: Final = Side(_GREETING, _request, pb.InvokeResponse)
EXECUTOR: Final = Side(_GREETING, _response, pb.InvokeRequest)
