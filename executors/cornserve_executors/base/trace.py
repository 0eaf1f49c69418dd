"""The span of an invocation, if its process is traced."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cornserve.observe import tracing
from cornserve.v1 import executor_pb2 as pb
from cornserve_executors.base.metrics import Observed


@contextmanager
def traced(executor: str, start: pb.Start, observed: Observed) -> Iterator[None]:
    """Continues the caller's trace, to the end that is `observed`."""
    if tracing.tracer is None:
        yield
        return
    from opentelemetry.trace import SpanKind, StatusCode

    span = tracing.begin(
        f"run {executor}",
        SpanKind.SERVER,
        tracing.from_headers({"traceparent": start.traceparent, "tracestate": start.tracestate}),
        {
            "cornserve.request_id": start.request_id,
            "cornserve.invocation": start.invocation,
            "cornserve.attempt": start.attempt,
        },
    )
    tracing.current.set(span)
    try:
        yield
    finally:
        span.set_attribute("cornserve.code", observed.code)
        if observed.code not in ("OK", "CANCELLED"):
            span.set_attribute("error.type", observed.code)
            span.set_status(StatusCode.ERROR)
        span.end()
