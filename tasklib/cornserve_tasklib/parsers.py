"""Names of vLLM's parsers of generated text."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator

from cornserve_tasklib.vllm_architectures import REASONING_PARSERS, TOOL_PARSERS, VLLM_VERSION


def _known_name(names: frozenset[str]) -> AfterValidator:
    def check(name: str) -> str:
        if name not in names:
            raise ValueError(f"vLLM {VLLM_VERSION} has no parser {name!r}: choose from {', '.join(sorted(names))}")
        return name

    return AfterValidator(check)


ToolParser = Annotated[str, _known_name(TOOL_PARSERS)]
"""A parser of tool calls ("hermes", "llama3_json", …)."""

ReasoningParser = Annotated[str, _known_name(REASONING_PARSERS)]
"""A parser that separates reasoning from text ("qwen3", "deepseek_r1", …)."""
