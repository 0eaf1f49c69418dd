"""Runs one invocation: validates its input, calls the executor, and turns its result or error into an `End`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Final

from pydantic import ValidationError

from cornserve.exception_text import encodable, exception_text
from cornserve.observe.redaction import redacted_traceback
from cornserve.task.output import Output
from cornserve.task.references import Blob, Origin, ReferenceDecoder
from cornserve.tracebacks import clear_traceback
from cornserve.transport import DuplicateProductionError, SlabError, StaleError, TensorTooLargeError
from cornserve.v1 import executor_pb2 as pb
from cornserve.validation_errors import describe_all
from cornserve_executors.base.context import InvocationCaller, InvocationContext
from cornserve_executors.base.executor import (
    CannotContinueError,
    EngineDeadError,
    Executor,
    HandedOverError,
    InvalidRequestError,
    OverloadedError,
)
from cornserve_executors.base.repeated_output import MAX_BUFFERED, RepeatedOutput
from cornserve_executors.base.tensors import InputLostError, InvocationTensors

log = logging.getLogger(__name__)

MAX_INPUTS: Final = 16_384
"""The limit for the tensors and blobs of one invocation."""

MAX_MESSAGE_CHARACTERS: Final = 10_000
"""The limit for the message of an end, of which gateways cut off the rest."""

MAX_PRODUCERS: Final = 256
"""The limit for the endpoints that the inputs of one invocation name. Each may need a connection."""


class UnpublishedTensorError(Exception):
    """An executor has returned without publishing a tensor of its output, for which consumers would wait."""

    def __init__(self, outputs: Sequence[str]) -> None:
        super().__init__(f"the executor has not published its output {', '.join(map(repr, outputs))}")


def timeout_seconds(start: pb.Start) -> float | None:
    """Returns the invocation's timeout, or None without one."""
    return start.timeout_ms / 1000 or None


async def run(
    executor: Executor[Any, Any, Any], start: pb.Start, tensors: InvocationTensors, caller: InvocationCaller
) -> pb.End:
    """Runs the invocation; returns how it ended.

    Raises:
        EngineDeadError: the executor cannot run further invocations.
    """
    timeout = asyncio.timeout(timeout_seconds(start))
    try:
        async with timeout:
            return pb.End(values=await _invoke(executor, start, tensors, caller))
    except EngineDeadError:
        raise
    except Exception as error:
        end = _error_end(error, is_late=timeout.expired())
        end.has_state = end.code == pb.CODE_HANDED_OVER and tensors.has_state
        clear_traceback(error)
        return end


def _error_end(error: Exception, *, is_late: bool) -> pb.End:
    """Returns the end of an invocation that has raised an error. `is_late`: its timeout has passed."""
    match error:
        case TimeoutError() if is_late:
            return _end(pb.CODE_DEADLINE_EXCEEDED, "not done by the request's deadline")
        case ValidationError():
            return _end(pb.CODE_INVALID_ARGUMENT, describe_all(error.errors()))
        case InvalidRequestError() | DuplicateProductionError():
            return _end(pb.CODE_INVALID_ARGUMENT, str(error))
        case TensorTooLargeError():
            return _end(pb.CODE_INVALID_ARGUMENT, f"{error} (limit slab-mib, see `cornserve up --limit`)")
        case OverloadedError() | SlabError():
            return _end(pb.CODE_RESOURCE_EXHAUSTED, str(error))
        case HandedOverError():
            return _end(pb.CODE_HANDED_OVER, "another replica continues it")
        case CannotContinueError():
            log.warning("the invocation cannot be continued: %s", error)
            return _end(pb.CODE_CANNOT_CONTINUE, str(error))
        case InputLostError():
            return _end(pb.CODE_INPUT_LOST, str(error), error.inputs)
    log.error("the invocation failed:\n%s", redacted_traceback(error))
    return _end(pb.CODE_INTERNAL, exception_text(error))


def _end(code: pb.Code.ValueType, message: str, lost_inputs: Sequence[int] = ()) -> pb.End:
    """Returns an end. Messages may quote texts that UTF-8 cannot encode, such as names in damaged files."""
    return pb.End(code=code, message=encodable(message, MAX_MESSAGE_CHARACTERS), lost_inputs=lost_inputs)


async def _invoke(
    executor: Executor[Any, Any, Any], start: pb.Start, tensors: InvocationTensors, caller: InvocationCaller
) -> bytes:
    """Returns the output's values as JSON: everything but streams and tensors."""
    if executor.layout.has_tensors:
        tensors.begin_production()
    if start.delivered and not (executor.continues or executor.repeats):
        raise CannotContinueError("the executor cannot continue the output of an earlier attempt")
    repeated = None
    if start.delivered and executor.repeats:
        max_buffered = MAX_BUFFERED if executor.repeats == "in any order" else 0
        repeated = RepeatedOutput(executor.layout, start.delivered, caller, max_buffered=max_buffered)
    _check_inputs(start)
    inputs = ReferenceDecoder([_decode_input(encoded) for encoded in start.inputs])
    request = executor.request_adapter.validate_json(start.request, context=inputs)
    context = InvocationContext(start, tensors, repeated or caller)
    try:
        result: Output = await executor.invoke(request, context)
    except StaleError as error:
        raise InputLostError(tensors.stale_inputs(), str(error)) from error
    if repeated is not None:
        repeated.check_complete()
    if unpublished := tensors.unpublished(executor.layout.tensors):
        raise UnpublishedTensorError(unpublished)
    return result.values_json()


def _check_inputs(start: pb.Start) -> None:
    if len(start.inputs) > MAX_INPUTS:
        raise InvalidRequestError(f"the invocation has {len(start.inputs)} inputs: give at most {MAX_INPUTS}")
    producers = {given.pending.endpoint for given in start.inputs if given.HasField("pending")}
    if len(producers) > MAX_PRODUCERS:
        raise InvalidRequestError(
            f"the inputs of the invocation name {len(producers)} endpoints: give at most {MAX_PRODUCERS}"
        )


def _decode_input(encoded: pb.Input) -> Blob | Origin:
    match encoded.WhichOneof("source"):
        case "pending":
            return Origin(encoded.pending.invocation, encoded.pending.output)
        case "inline":
            return Blob(encoded.inline)
    raise InvalidRequestError("an input has a source that this executor does not know: update it")
