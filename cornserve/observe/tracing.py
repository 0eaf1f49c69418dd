"""OpenTelemetry traces of this process, if the environment names a collector (`OTEL_EXPORTER_OTLP_ENDPOINT`).

Otherwise there is no tracer, nothing of OpenTelemetry is loaded, and callers do nothing at all. Spans leave from a
thread of their own, in batches; a collector that is slow or gone costs spans, never requests.
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

FLUSH_SECONDS = 2.0
"""How long the end of a process may wait for a collector."""

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")

tracer: Tracer | None = None
"""None: nothing is traced."""
_provider: TracerProvider | None = None
current: ContextVar[Span | None] = ContextVar("span", default=None)
"""Of the invocation that this asyncio task runs."""


def is_wanted() -> bool:
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    return os.environ.get("OTEL_TRACES_EXPORTER", "otlp") == "otlp" and any(map(os.environ.get, _ENDPOINTS))


def setup(service: str, instance: str | None = None) -> None:
    """Traces from now on, if that is wanted. The standard OTEL_* variables say where to and how much.

    Args:
        service: what the process is called, if the environment says nothing else.
        instance: its id among others of the service.
    """
    global tracer, _provider
    if not is_wanted():
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


def finish() -> None:
    """Sends what is left, if that is quickly done."""
    global tracer, _provider
    if _provider is not None:
        sending = threading.Thread(target=_provider.shutdown, daemon=True)
        sending.start()
        sending.join(FLUSH_SECONDS)
    tracer = _provider = None


def begin(name: str, kind: SpanKind, parent: Context | None, attributes: Attributes) -> Span:
    """Only while there is a tracer."""
    assert tracer is not None
    return tracer.start_span(name, parent, kind, attributes)


def annotate(attributes: Attributes) -> None:
    """Adds to what is told of the invocation that this asyncio task runs, if it is traced."""
    span = current.get()
    if span is not None:
        span.set_attributes(attributes)


def step(name: str, start: float, end: float) -> None:
    """Tells of a part of it that has ended, by times of the monotonic clock."""
    span = current.get()
    if span is None or tracer is None:
        return
    from opentelemetry.trace import set_span_in_context

    epoch = time.time() - time.monotonic()
    part = tracer.start_span(name, set_span_in_context(span), start_time=int((epoch + start) * 1e9))
    part.end(int((epoch + end) * 1e9))


def from_headers(headers: Mapping[str, str]) -> Context:
    """What the caller's W3C trace context says; empty where it says nothing that is one."""
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier = {name: headers[name] for name in ("traceparent", "tracestate") if headers.get(name)}
    return TraceContextTextMapPropagator().extract(carrier, Context())


def to_headers(span: Span) -> dict[str, str]:
    from opentelemetry.trace import set_span_in_context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier, set_span_in_context(span))
    return carrier
