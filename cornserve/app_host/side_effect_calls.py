"""Calls with side effects as messages."""

from __future__ import annotations

from cornserve.task.side_effect_call import SideEffectCall
from cornserve.v1 import app_host_pb2 as pb


def describe_call(call: SideEffectCall) -> pb.SideEffectCall:
    """Returns the message for a call."""
    return pb.SideEffectCall(function=call.function, line=call.line, arguments=call.arguments)


def described_call(described: pb.SideEffectCall) -> SideEffectCall:
    """Returns the call that a message describes."""
    return SideEffectCall(described.function, described.line, described.arguments)
