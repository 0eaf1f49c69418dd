"""An OpenTelemetry collector that receives traces by OTLP over gRPC and keeps them in memory."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as otlp
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as otlp_grpc


@dataclass(frozen=True, slots=True)
class Span:
    service: str
    name: str
    id: bytes
    parent: bytes
    trace: str
    attributes: dict[str, Any]


@dataclass
class TraceCollector(otlp_grpc.TraceServiceServicer):
    endpoint: str = ""
    received: list[otlp.ExportTraceServiceRequest] = field(default_factory=list)

    def Export(  # noqa: N802 - gRPC's spelling
        self, request: otlp.ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> otlp.ExportTraceServiceResponse:
        self.received.append(request)
        return otlp.ExportTraceServiceResponse()

    def spans(self, trace: str | None = None) -> list[Span]:
        """Returns the spans of one trace, or of all."""
        return [
            Span(
                service=_attributes(resource_spans.resource)["service.name"],
                name=span.name,
                id=span.span_id,
                parent=span.parent_span_id,
                trace=span.trace_id.hex(),
                attributes=_attributes(span),
            )
            for request in list(self.received)
            for resource_spans in request.resource_spans
            for scope_spans in resource_spans.scope_spans
            for span in scope_spans.spans
            if trace in (None, span.trace_id.hex())
        ]


def _attributes(holder: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in holder.attributes}


@contextmanager
def running_collector() -> Iterator[TraceCollector]:
    collector = TraceCollector()
    server = grpc.server(ThreadPoolExecutor(2))
    otlp_grpc.add_TraceServiceServicer_to_server(collector, server)  # type: ignore[no-untyped-call]
    collector.endpoint = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield collector
    finally:
        server.stop(grace=None).wait()
