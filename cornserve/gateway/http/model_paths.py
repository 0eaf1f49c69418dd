"""The paths of the operations that call models."""

from __future__ import annotations

_OF_VLLM = frozenset({"/tokenize", "/detokenize"})
"""Paths outside of /v1, with the names of vLLM's server."""


def calls_model(path: str) -> bool:
    return path.startswith("/v1/") or path in _OF_VLLM
