"""Tracing costs nothing while it is off, and an unreachable collector does not delay a process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

TRACE = """
import time
from cornserve.observe import tracing

began = time.monotonic()
tracing.setup("service")
from opentelemetry.trace import SpanKind
for _ in range(5_000):
    tracing.start_span("span", SpanKind.SERVER, None, {}).end()
traced = time.monotonic()
tracing.shutdown()
print(traced - began < 5, time.monotonic() - traced < 5, tracing.tracer)
"""

LOADED = """
import sys
import cornserve.gateway.api, cornserve_executors.base.__main__
from cornserve.observe import tracing
tracing.setup("service")
print(tracing.tracer, [name for name in sys.modules if name.startswith("opentelemetry")])
"""


def run(code: str, environment: dict[str, str]) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=clean | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_an_unreachable_collector_delays_neither_spans_nor_shutdown() -> None:
    assert run(TRACE, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}) == "True True None"


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none"},
    ],
)
def test_opentelemetry_is_not_imported_without_a_collector(environment: dict[str, str]) -> None:
    assert run(LOADED, environment) == "None []"
