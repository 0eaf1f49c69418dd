"""Tracing costs nothing while it is off, and an unreachable collector does not delay a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys

TRACE = """
import time
from cornserve.observe import tracing

tracing.setup("service")
from opentelemetry.trace import SpanKind
began = time.monotonic()
for _ in range(5_000):
    tracing.start_span("span", SpanKind.SERVER, None, {}).end()
traced = time.monotonic()
tracing.shutdown()
print(traced - began < 5, time.monotonic() - traced < 5, tracing.tracer)
"""

LOADED = """
import json, os, sys
import cornserve.gateway.api, cornserve_executors.base.__main__
from cornserve.observe import tracing
for environment in json.loads(sys.argv[1]):
    before = dict(os.environ)
    os.environ.update(environment)
    tracing.setup("service")
    os.environ.clear()
    os.environ.update(before)
    print(tracing.tracer, [name for name in sys.modules if name.startswith("opentelemetry")])
"""


def run(code: str, *arguments: str, **environment: str) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=clean | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_an_unreachable_collector_delays_neither_spans_nor_shutdown() -> None:
    assert run(TRACE, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:1") == "True True None"


def test_opentelemetry_is_not_imported_without_a_collector() -> None:
    environments = [
        {},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none"},
    ]
    assert run(LOADED, json.dumps(environments)).splitlines() == ["None []"] * 3
