"""Errors of invocations, in the form in which they travel between an app host and its parent."""

from __future__ import annotations

from cornserve.task.errors import InvocationError
from cornserve.v1 import app_host_pb2 as pb


def describe_failure(error: InvocationError) -> pb.InvocationFailure:
    return pb.InvocationFailure(invocation=error.invocation, task=error.task, code=error.code, message=error.message)


def invocation_error(failure: pb.InvocationFailure) -> InvocationError:
    return InvocationError(failure.task, failure.invocation, failure.code, failure.message)
