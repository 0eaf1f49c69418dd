"""A real OpenTelemetry collector, as far as traces go: it takes them by OTLP over gRPC, and keeps them."""

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
class Collector(otlp_grpc.TraceServiceServicer):
    endpoint: str = ""
    received: list[otlp.ExportTraceServiceRequest] = field(default_factory=list)

    def Export(  # noqa: N802 - gRPC's spelling
        self, request: otlp.ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> otlp.ExportTraceServiceResponse:
        self.received.append(request)
        return otlp.ExportTraceServiceResponse()

    def spans(self, trace: str | None = None) -> list[Span]:
        """Of one trace, or all."""
        return [
            Span(
                service=_attributes(of_process.resource)["service.name"],
                name=span.name,
                id=span.span_id,
                parent=span.parent_span_id,
                trace=span.trace_id.hex(),
                attributes=_attributes(span),
            )
            for request in list(self.received)
            for of_process in request.resource_spans
            for of_scope in of_process.scope_spans
            for span in of_scope.spans
            if trace in (None, span.trace_id.hex())
        ]


def _attributes(holder: Any) -> dict[str, Any]:
    return {it.key: getattr(it.value, it.value.WhichOneof("value")) for it in holder.attributes}


@contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()
    server = grpc.server(ThreadPoolExecutor(2))
    otlp_grpc.add_TraceServiceServicer_to_server(collector, server)  # type: ignore[no-untyped-call]
    collector.endpoint = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield collector
    finally:
        server.stop(grace=None).wait()
