"""The spans of one request in the gateway: the request, each run of its task, and each attempt of an invocation.

This module loads OpenTelemetry, so it is imported only if tracing is enabled.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from opentelemetry.trace import Span, SpanKind, StatusCode, set_span_in_context
from starlette.requests import Request

from cornserve.gateway.observe.request_stats import RequestStats
from cornserve.gateway.request_invocation import RequestInvocation
from cornserve.observe import tracing
from cornserve.v1 import executor_pb2 as pb


class RequestTrace:
    __slots__ = ("_context", "_span")

    def __init__(self, request: Request, request_id: str, app: str) -> None:
        route = getattr(request.scope.get("route"), "path", request.url.path)
        self._span = tracing.start_span(
            f"{request.method} {route}",
            SpanKind.SERVER,
            tracing.extract_context(request.headers),
            {
                "http.request.method": request.method,
                "http.route": route,
                "url.path": request.url.path,
                "gen_ai.request.model": app,
                "cornserve.app": app,
                "cornserve.request_id": request_id,
            },
        )
        self._context = set_span_in_context(self._span)

    def run(self, task: str) -> AbstractContextManager[None]:
        """Covers a run of a task."""
        return self._step(f"run {task}", {"cornserve.task": task})

    def side_effect(self, function: str) -> AbstractContextManager[None]:
        """Covers a call of a function by `recorded`."""
        return self._step(f"recorded {function}", {"code.function.name": function})

    @contextmanager
    def _step(self, name: str, attributes: dict[str, str]) -> Iterator[None]:
        span = tracing.start_span(name, SpanKind.INTERNAL, self._context, attributes)
        try:
            yield
        except Exception as error:
            span.set_attribute("error.type", type(error).__name__)
            span.set_status(StatusCode.ERROR)
            raise
        finally:
            span.end()

    def begin_attempt(self, invocation: RequestInvocation, endpoint: str, start: pb.Start) -> Span:
        """Starts the span of an attempt, and writes its context into `start` for the executor."""
        host, _, port = endpoint.rpartition(":")
        span = tracing.start_span(
            f"invoke {invocation.task_name}",
            SpanKind.CLIENT,
            self._context,
            {
                "server.address": host,
                "server.port": int(port),
                "cornserve.task": invocation.task_name,
                "cornserve.group": invocation.executor_key,
                "cornserve.invocation": start.invocation,
                "cornserve.attempt": start.attempt,
            },
        )
        headers = tracing.trace_headers(span)
        start.traceparent = headers["traceparent"]
        start.tracestate = headers.get("tracestate", "")
        return span

    def end_attempt(self, span: Span, code: str) -> None:
        span.set_attribute("cornserve.code", code)
        if code not in ("OK", "CANCELLED", "HANDED_OVER"):
            span.set_attribute("error.type", code)
            span.set_status(StatusCode.ERROR)
        span.end()

    def end(self, stats: RequestStats, status: int) -> None:
        span = self._span
        span.set_attribute("http.response.status_code", status)
        if stats.path is not None:
            span.set_attribute("cornserve.path", stats.path)
        if stats.prompt_tokens or stats.generation_tokens:
            span.set_attribute("gen_ai.usage.input_tokens", stats.prompt_tokens)
            span.set_attribute("gen_ai.usage.output_tokens", stats.generation_tokens)
        if status >= 500:
            span.set_attribute("error.type", str(status))
            span.set_status(StatusCode.ERROR)
        span.end()
