"""OpenTelemetry traces of this process, if the environment names a collector (`OTEL_EXPORTER_OTLP_ENDPOINT`).

Otherwise, the process does not import OpenTelemetry, and callers skip tracing. A thread exports spans in batches:
a collector that is slow or unreachable loses spans and does not delay requests.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span, SpanKind, Tracer

Attributes = Mapping[str, str | int | float | bool]

FLUSH_TIMEOUT_SECONDS = 2.0
"""The time that the exit of a process waits for the collector."""

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")

tracer: Tracer | None = None
"""The tracer of this process, or None if tracing is off."""
_provider: TracerProvider | None = None
current_span: ContextVar[Span | None] = ContextVar("span", default=None)
"""The span of the invocation that this asyncio task runs."""


def is_configured() -> bool:
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    return os.environ.get("OTEL_TRACES_EXPORTER", "otlp") == "otlp" and any(map(os.environ.get, _ENDPOINTS))


def setup(service: str, instance: str | None = None) -> None:
    """Starts tracing if the environment configures it. The standard OTEL_* variables define exporter and sampling.

    Args:
        service: the default service name.
        instance: the id of this process within the service.
    """
    global tracer, _provider
    if not is_configured():
        return
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource({} if instance is None else {"service.instance.id": instance}).merge(Resource.create())
    if str(resource.attributes["service.name"]).startswith("unknown_service"):
        resource = resource.merge(Resource({"service.name": service}))
    _provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    _provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    tracer = _provider.get_tracer("cornserve")


def shutdown() -> None:
    """Exports the remaining spans, within `FLUSH_TIMEOUT_SECONDS`."""
    global tracer, _provider
    if _provider is not None:
        flushing = threading.Thread(target=_provider.shutdown, daemon=True)
        flushing.start()
        flushing.join(FLUSH_TIMEOUT_SECONDS)
    tracer = _provider = None


def start_span(name: str, kind: SpanKind, parent: Context | None, attributes: Attributes) -> Span:
    """Requires that tracing is on."""
    assert tracer is not None
    return tracer.start_span(name, parent, kind, attributes)


def set_attributes(attributes: Attributes) -> None:
    """Sets attributes of the current span, if any."""
    span = current_span.get()
    if span is not None:
        span.set_attributes(attributes)


def record_child_span(name: str, start: float, end: float) -> None:
    """Records a finished child of the current span, if any. Times are of the monotonic clock."""
    span = current_span.get()
    if span is None or tracer is None:
        return
    from opentelemetry.trace import set_span_in_context

    epoch = time.time() - time.monotonic()
    child = tracer.start_span(name, set_span_in_context(span), start_time=int((epoch + start) * 1e9))
    child.end(int((epoch + end) * 1e9))


def extract_context(headers: Mapping[str, str]) -> Context:
    """Returns the W3C trace context of the headers; empty if it is missing or invalid."""
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier = {name: headers[name] for name in ("traceparent", "tracestate") if headers.get(name)}
    return TraceContextTextMapPropagator().extract(carrier, Context())


def trace_headers(span: Span) -> dict[str, str]:
    """Returns the W3C trace context of the span as headers."""
    from opentelemetry.trace import set_span_in_context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier, set_span_in_context(span))
    return carrier
