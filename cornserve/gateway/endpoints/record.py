"""`/admin/v1/apps/{name}/record`: calls an app, and returns its calls of unit tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import Request
from pydantic_core import from_json

from cornserve.app.response_readers import JSON
from cornserve.app.run_record import CallRecord, RunRecord
from cornserve.gateway.context import Context
from cornserve.gateway.endpoints.read_request import read_native
from cornserve.gateway.endpoints.request_handler import RequestHandler, SendResponse
from cornserve.gateway.errors import ApiError
from cornserve.gateway.observe.app_logs import RequestLog
from cornserve.gateway.request.session import Session, StreamNotRequestedError
from cornserve.gateway.request_invocation import RequestInvocation
from cornserve.task.references import Blob, Origin, ReferenceDecoder


async def record(name: str, request: Request, context: Context) -> SendResponse:
    """Returns the app's response, or its error, and its calls of unit tasks in their order."""
    handler = await RequestHandler.create(context, name, request)
    app_request, media = await read_native(request, lambda body: handler.served_app.code.parse(body or b"null"))
    handler.set_media(media)
    return await handler.respond(RecordHandler(app_request, handler.api_error, handler.log).respond)


class RecordHandler:
    """Runs one request and describes its calls.

    Args:
        log: that of the request.
    """

    def __init__(self, request: Any, api_error: Callable[[Exception], ApiError], log: RequestLog) -> None:
        self._request = request
        self._api_error = api_error
        self._log = log

    async def respond(self, session: Session) -> bytes:
        kept, response, message = self._log.keep_lines(), None, None
        try:
            json = await session.run(self._request, JSON)
            response = from_json(json)
        except StreamNotRequestedError:
            raise  # The handler runs the request again.
        except Exception as error:
            failure = self._api_error(error)
            if failure.status == HTTPStatus.BAD_REQUEST and not session.invocations:
                raise failure from None  # The body is not valid.
            message = failure.body.error.message
        run = RunRecord(calls=_calls(session), response=response, error=message, log=[*kept])
        return run.model_dump_json(exclude_none=True).encode()


def _calls(session: Session) -> list[CallRecord]:
    return [
        CallRecord(
            task=invocation.task_name,
            round=number,
            line=invocation.line,
            request=_replace_inputs(from_json(invocation.request), invocation.inputs, session.invocations),
            output=output if invocation.ended and invocation.error is None else None,
            error=None if invocation.error is None else str(invocation.error),
        )
        for invocation, number, output in zip(session.invocations, session.rounds, session.outputs(), strict=True)
    ]


def _replace_inputs(value: Any, inputs: Sequence[Origin | Blob], invocations: Sequence[RequestInvocation]) -> Any:
    """Returns a request with descriptions of its tensors, streams and media."""
    if isinstance(value, list):
        return [_replace_inputs(item, inputs, invocations) for item in value]
    if not isinstance(value, dict):
        return value
    given = ReferenceDecoder(inputs).resolve(value)
    if isinstance(given, Origin | Blob):
        return _describe(given, invocations)
    return {name: _replace_inputs(item, inputs, invocations) for name, item in value.items()}


def _describe(given: Origin | Blob, invocations: Sequence[RequestInvocation]) -> str:
    if isinstance(given, Blob):
        return f"<{len(given.data)} bytes>"
    return f"<{given.output} of call {given.invocation}, {invocations[given.invocation].task_name}>"
