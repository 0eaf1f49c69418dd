"""The services of an executor's gRPC health checks, which probes name."""

from __future__ import annotations

from typing import Final

READINESS_SERVICE: Final = "cornserve.v1.Executor"
"""Serves while the executor is ready. The empty name is an alias."""
LIVENESS_SERVICE: Final = "liveness"
"""Serves while the executor's event loop runs, also while a model loads and during a drain."""
