"""One invocation at an executor, from what its caller has sent to how it has ended."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from pydantic import ValidationError

from cornserve.observe.redaction import redacted_traceback
from cornserve.task.output import Output
from cornserve.task.references import Blob, Origin, ReferenceDecoder, Tensor
from cornserve.tracebacks import clear_traceback
from cornserve.transport import StaleError, TensorTooLargeError
from cornserve.v1 import executor_pb2 as pb
from cornserve_executors.base.call import Call, Send
from cornserve_executors.base.executor import EngineDeadError, Executor, InvalidRequestError, OverloadedError
from cornserve_executors.base.tensors import InputLostError, Tensors

log = logging.getLogger(__name__)


def seconds_of(start: pb.Start) -> float | None:
    """How long it may take. None: for ever."""
    return start.timeout_ms / 1000 or None


async def run(executor: Executor[Any, Any, Any], start: pb.Start, tensors: Tensors, send: Send) -> pb.End:
    """Runs it, and says how it has ended.

    Raises:
        EngineDeadError: the executor can run nothing more.
    """
    try:
        async with asyncio.timeout(seconds_of(start)):
            return pb.End(values=await _values(executor, start, tensors, send))
    except EngineDeadError:
        raise
    except Exception as error:
        end = _end_by(error)
        clear_traceback(error)
        return end


def _end_by(error: Exception) -> pb.End:
    match error:
        case TimeoutError():
            return pb.End(code=pb.CODE_DEADLINE_EXCEEDED, message="not done by the request's deadline")
        case InvalidRequestError() | ValidationError():
            return pb.End(code=pb.CODE_INVALID_ARGUMENT, message=str(error))
        case TensorTooLargeError():
            message = f"{error} (limit slab-mib, see `cornserve up --limit`)"
            return pb.End(code=pb.CODE_INVALID_ARGUMENT, message=message)
        case OverloadedError():
            return pb.End(code=pb.CODE_RESOURCE_EXHAUSTED, message=str(error))
        case InputLostError():
            return pb.End(code=pb.CODE_INPUT_LOST, message=str(error), lost_inputs=error.inputs)
    log.error("the invocation failed:\n%s", redacted_traceback(error))
    return pb.End(code=pb.CODE_INTERNAL, message=f"{type(error).__name__}: {error}")


async def _values(executor: Executor[Any, Any, Any], start: pb.Start, tensors: Tensors, send: Send) -> bytes:
    """What of its output is neither stream nor tensor, as JSON."""
    if start.delivered and not executor.continues:
        raise InvalidRequestError("this executor does not go on from what another has sent")
    given = ReferenceDecoder([_given(one) for one in start.inputs])
    request = executor.request_adapter.validate_json(start.request, context=given)
    call = Call(start, tensors, send)
    try:
        result: Output = await executor.invoke(request, call)
    except (InputLostError, StaleError) as error:
        if call.has_begun:
            raise RuntimeError(f"what it takes was lost after its output had begun: {error}") from error
        raise error if isinstance(error, InputLostError) else InputLostError(tensors.stale(), str(error)) from error
    return result.values_json()


def _given(one: pb.Input) -> Blob | Tensor:
    if one.HasField("pending"):
        return Tensor(Origin(one.pending.invocation, one.pending.output))
    return Blob(one.inline)
