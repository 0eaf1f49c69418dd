"""The trace span of an invocation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cornserve.observe import tracing
from cornserve.v1 import executor_pb2 as pb
from cornserve_executors.base.metrics import InvocationOutcome


@contextmanager
def invocation_span(executor: str, start: pb.Start, outcome: InvocationOutcome) -> Iterator[None]:
    """Continues the caller's trace with a span that ends with `outcome`. Does nothing if tracing is off."""
    if tracing.tracer is None:
        yield
        return
    from opentelemetry.trace import SpanKind, StatusCode

    span = tracing.start_span(
        f"run {executor}",
        SpanKind.SERVER,
        tracing.extract_context({"traceparent": start.traceparent, "tracestate": start.tracestate}),
        {
            "cornserve.request_id": start.client_request_id or start.request_id,
            "cornserve.invocation": start.invocation,
            "cornserve.attempt": start.attempt,
        },
    )
    tracing.current_span.set(span)
    try:
        yield
    finally:
        span.set_attribute("cornserve.code", outcome.code)
        if outcome.code not in ("OK", "CANCELLED", "HANDED_OVER"):
            span.set_attribute("error.type", outcome.code)
            span.set_status(StatusCode.ERROR)
        span.end()
