"""The part that all operations on apps share: sessions, disconnects, streams, errors, metrics."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from pydantic import BaseModel
from starlette.requests import Request
from starlette.types import Send

from cornserve.app.media_slots import MediaSlot
from cornserve.app.unused_fields import UnusedFieldsError
from cornserve.gateway.context import GatewayContext
from cornserve.gateway.endpoints import sse
from cornserve.gateway.endpoints.read_request import client_identity
from cornserve.gateway.endpoints.rejection import rejection
from cornserve.gateway.endpoints.unknown_fields import unknown_fields_header
from cornserve.gateway.errors import ApiError, AppCodeError
from cornserve.gateway.http.admission import MemoryReservation
from cornserve.gateway.http.disconnect import CancelOnDisconnect
from cornserve.gateway.http.incomplete_response import close_incomplete
from cornserve.gateway.http.request_id import REQUEST_ID, RequestIds
from cornserve.gateway.http.response_body import send_chunk
from cornserve.gateway.live.replica_prices import RequestCost, request_cost
from cornserve.gateway.observe import access_log
from cornserve.gateway.observe.app_logs import RequestLog
from cornserve.gateway.request.session import Session, StreamNotRequestedError
from cornserve.limits import Limits
from cornserve.observe import logs, tracing
from cornserve.observe.redaction import redacted_traceback
from cornserve.task.errors import InvocationError, TaskError
from cornserve.tracebacks import clear_traceback
from cornserve_policies.admission import Refusal
from cornserve_tasklib.media import Modality

if TYPE_CHECKING:  # It loads OpenTelemetry.
    from cornserve.gateway.observe.request_trace import RequestTrace

log = logging.getLogger(__name__)

TIMEOUT_HEADER = "x-request-timeout"

CreateBody = Callable[[Session], Awaitable[bytes]]
EncodeError = Callable[[ApiError], bytes]
CreateParts = Callable[[Session], AsyncGenerator[bytes, None]]
SendResponse = Callable[[Send], Coroutine[Any, Any, None]]


def _error_event(error: ApiError) -> bytes:
    return sse.encode_event(error.content, "error")


class RequestHandler:
    """Handles one request to one app.

    Args:
        body_type: the type of the body. Errors of executors name its fields.
    """

    def __init__(
        self, context: GatewayContext, app: str, request: Request, body_type: type[BaseModel] = BaseModel
    ) -> None:
        self.ids = RequestIds.of(request.scope["state"][REQUEST_ID], context.draw_key)
        self.log = RequestLog(context.app_logs.own, app, self.ids.public)
        self.served_app = context.apps.get(app)
        self._context = context
        self._app = app
        self._request = request
        self._body_type = body_type
        self._stats = context.metrics.new_request(app)
        self._trace: RequestTrace | None = None
        self._arrived_us = time.time_ns() // 1000
        self._deadline = asyncio.get_running_loop().time() + _timeout_seconds(request, context.admission.limits)
        self._fetched = MemoryReservation(context.admission)
        self._media: list[MediaSlot] = []
        self._rename_field: Callable[[str], str] = str
        self._status = 499
        self._error_code = ""
        logs.bind(app=app)

    @classmethod
    async def create(
        cls, context: GatewayContext, app: str, request: Request, body_type: type[BaseModel] = BaseModel
    ) -> Self:
        """Returns a handler as soon as this gateway has loaded the app."""
        await context.apps.wait_while_loading(app)
        return cls(context, app, request, body_type)

    def set_media(self, media: list[MediaSlot]) -> None:
        """Sets the media of the request, which are loaded before the task runs."""
        self._media = media

    def set_field_names(self, rename_field: Callable[[str], str]) -> None:
        """Sets the function that replaces the path at the start of a text, for bodies with other fields than the
        app's request."""
        self._rename_field = rename_field

    def count_media(self, modalities: Iterable[Modality]) -> None:
        """Counts media that the endpoint has loaded itself, in the metrics."""
        self._stats.record_media(modalities)

    def cost(self) -> RequestCost:
        """Returns the cost of the invocations that have ended."""
        record = self._context.apps.records().get(self._app)
        if record is None:  # the app was deleted meanwhile
            return {"gpu_seconds": self._stats.compute_seconds, "dollars": None}
        return request_cost(self._stats.group_seconds, record.spec, record.status.groups, self._context.prices)

    async def respond(self, create_body: CreateBody, content_type: str = "application/json") -> SendResponse:
        """Returns a response, by default JSON. A disconnect cancels the request."""
        self._start(streams=False)
        try:
            with CancelOnDisconnect(self._request.scope):
                if self._media:
                    await self._load_media()
                body = await self._body(create_body)
            self._status = 200
            return partial(self._send_body, body, content_type)
        except Exception as error:
            raise self.api_error(error) from None
        finally:
            self._finish()

    async def _send_body(self, body: bytes, content_type: str, send: Send) -> None:
        headers = [(name.encode(), value.encode()) for name, value in self._headers(content_type).items()]
        headers.append((b"content-length", b"%d" % len(body)))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send_chunk(send, body, self._context.admission, is_last=True)

    def _headers(self, content_type: str) -> dict[str, str]:
        return {"content-type": content_type, **unknown_fields_header(self._request.scope)}

    def stream(
        self,
        create_parts: CreateParts,
        content_type: str = sse.CONTENT_TYPE,
        encode_error: EncodeError = _error_event,
    ) -> SendResponse:
        """Returns a response that is sent in parts, by default server-sent events.

        An error before the first part becomes an error response. A later one becomes an event, or for other content
        types closes the connection, so that the client does not take the response for a complete one.
        """
        return partial(self._send_parts, create_parts, content_type, encode_error)

    async def _send_parts(
        self, create_parts: CreateParts, content_type: str, encode_error: EncodeError, send: Send
    ) -> None:
        stream = sse.ResponseStream(send, self._context.admission, self._headers(content_type))
        self._start(streams=True)
        try:
            with CancelOnDisconnect(self._request.scope):
                if self._media:
                    await self._load_media()
                with self._session(streams=True) as session:
                    async with aclosing(create_parts(session)) as parts:
                        async for part in parts:
                            await stream.send(part)
            self._status = 200
        except Exception as error:
            if not stream.is_started:
                raise self.api_error(error) from None
            failure = self.api_error(error)
            if content_type != sse.CONTENT_TYPE:
                close_incomplete(self._request.scope)
                return
            await stream.send(encode_error(failure))
        finally:
            self._finish()
        await stream.finish()

    async def _load_media(self) -> None:
        try:
            async with asyncio.timeout_at(self._deadline):
                await self._context.media.load(self._media, self._fetched.reserve, self._run_step)
                self.count_media(slot.media.modality for slot in self._media)
        except TimeoutError:
            message = f"the media could not be fetched by the request's deadline: set a longer {TIMEOUT_HEADER}"
            raise ApiError(504, message, code="deadline_exceeded") from None

    async def _run_step(self, step: Callable[[], bytes]) -> bytes:
        return await self._context.admission.large_work.run(step, client_identity(self._request))

    async def _body(self, create_body: CreateBody) -> bytes:
        with self._session(streams=False) as session:
            try:
                return await create_body(session)
            except StreamNotRequestedError:
                # The task reads a stream of an output after a value of it. This is rare: run the request again.
                attempt = session.next_attempt
        with self._session(streams=True, attempt=attempt) as session:
            return await create_body(session)

    def _session(self, *, streams: bool, attempt: int = 0) -> Session:
        return Session(
            self.ids,
            self.served_app,
            self._context.replicas,
            self._stats,
            self._trace,
            log=self.log,
            streams=streams,
            arrived_us=self._arrived_us,
            deadline=self._deadline,
            attempt=attempt,
        )

    def api_error(self, error: Exception) -> ApiError:
        """Returns the error for the client.

        Logs the errors of code. Clears the traceback of `error`, which would keep the request in memory.
        """
        if isinstance(error, AppCodeError):
            self.log.add_failure(error)
        elif not isinstance(error, ApiError | TaskError):
            log.error("the request failed", extra=logs.traceback_field(redacted_traceback(error)))
        if isinstance(error, InvocationError) and error.code == "INVALID_ARGUMENT":
            api_error = rejection(self._rename_field(error.message), self._body_type.model_fields, self._media)
        elif isinstance(error, UnusedFieldsError):
            api_error = ApiError.from_exception(UnusedFieldsError([*map(self._rename_field, error.fields)]))
        else:
            api_error = ApiError.from_exception(error)
        detail = api_error.body.error
        detail.param = detail.param and self._rename_field(detail.param)
        self._status = api_error.status
        self._error_code = detail.code or detail.type
        clear_traceback(error)
        return api_error

    def _start(self, *, streams: bool) -> None:
        """Raises a 429 if the app has too many requests in flight, or if the request would miss a target of the app."""
        self._context.admission.start_app_request(self._app)
        refusal = self._stats.admit(streams=streams)
        if refusal is not None:
            self._context.admission.finish_app_request(self._app)
            raise _refused(self._app, refusal)
        if tracing.tracer is not None:
            from cornserve.gateway.observe.request_trace import RequestTrace

            self._trace = RequestTrace(self._request, self.ids.public, self._app)

    def _finish(self) -> None:
        self._context.admission.finish_app_request(self._app)
        self._fetched.release()
        self._stats.record_end(self._status)
        if self._trace is not None:
            self._trace.end(self._stats, self._status)
        path, arrived = self._request.scope["path"], self._arrived_us / 1e6
        error = "" if self._status == 200 else self._error_code
        self._context.metrics.requests.add(self._stats, self._app, self.ids.public, path, arrived, self._status, error)
        access_log.log_request(self._stats, self._status)


def _refused(app: str, refusal: Refusal) -> ApiError:
    message = (
        f"the request would not meet the {refusal.target} target of {app!r}: {refusal.expected_seconds:.3g} s are "
        f"expected, and the target is {refusal.target_seconds:g} s; try again in {refusal.retry_after} s"
    )
    error = ApiError(429, message, code="target_unreachable")
    error.headers["retry-after"] = str(refusal.retry_after)
    return error


def _timeout_seconds(request: Request, limits: Limits) -> float:
    """Returns the value of `X-Request-Timeout`, or the maximum if the header is missing."""
    given, maximum = request.headers.get(TIMEOUT_HEADER), limits.request_seconds
    if given is None:
        return maximum
    try:
        seconds = float(given)
    except ValueError:
        seconds = 0
    is_decimal = given.isascii() and "_" not in given  # float() also accepts other forms.
    if not (is_decimal and 0 < seconds <= maximum):  # This comparison also excludes NaN.
        expected = f"a number of seconds above 0 and at most {maximum} ({limits.hint('request-seconds')})"
        raise ApiError(400, f"{TIMEOUT_HEADER} must be {expected}, not {given!r}", param=TIMEOUT_HEADER)
    return seconds
