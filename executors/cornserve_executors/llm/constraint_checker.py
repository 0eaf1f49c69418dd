"""Finds the JSON schema or other constraint of a request that vLLM cannot compile to a grammar.

vLLM compiles one grammar for all tools, or for the response format. Its error does not name the schema, and an error in
the engine has no message at all. After such an error, this module compiles the constraints one by one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

from vllm import SamplingParams
from vllm.sampling_params import StructuredOutputsParams
from vllm.v1.structured_output.backend_xgrammar import XgrammarBackend, validate_xgrammar_grammar
from vllm.v1.structured_output.request import get_structured_output_key

from cornserve_tasklib.chat_request import ChatRequest
from cornserve_tasklib.llm import LLMRequest

_SOURCE_LOCATION = re.compile(r"\[[\d:]+\] \S+\.cc:\d+: ")
"""Timestamp and source location at the start of xgrammar's errors."""


class Constraint(NamedTuple):
    """A constraint of the generated text."""

    field: str
    """The field of the request."""
    params: StructuredOutputsParams
    is_tool: bool = False


class ConstraintChecker:
    def __init__(self, vllm_config: Any, tokenizer: Any) -> None:
        self._vllm_config = vllm_config
        self._tokenizer = tokenizer

    def find_error(self, request: LLMRequest) -> str | None:
        """Returns the error of the first constraint that cannot be compiled, with its field. Blocks."""
        for constraint in constraints(request):
            try:
                # Refuses keywords that a grammar cannot enforce. vLLM allows them in tools.
                if not constraint.is_tool:
                    validate_xgrammar_grammar(SamplingParams(structured_outputs=constraint.params))
                self._compile(constraint.params)
            except Exception as error:
                reason = _SOURCE_LOCATION.sub("", str(error.__cause__ or error)).strip()
                return f"{constraint.field}: {reason}"
        return None

    def _compile(self, params: StructuredOutputsParams) -> None:
        grammar = self._backend.compile_grammar(*get_structured_output_key(params))
        allowed = self._backend.allocate_token_bitmask(1)
        grammar.fill_bitmask(allowed, 0)
        if not allowed.any():
            raise ValueError("no text matches it")

    @cached_property
    def _backend(self) -> XgrammarBackend:
        vocabulary = self._vllm_config.model_config.get_vocab_size()
        return XgrammarBackend(self._vllm_config, tokenizer=self._tokenizer, vocab_size=vocabulary)


def constraints(request: LLMRequest) -> Iterator[Constraint]:
    """Yields the constraints of a request."""
    if request.structured_outputs is not None:
        ((kind, value),) = request.structured_outputs.given.items()
        yield Constraint(f"structured_outputs.{kind}", StructuredOutputsParams(**{kind: value}))
    if not isinstance(request, ChatRequest):
        return
    if request.response_format is not None and request.response_format.json_schema is not None:
        schema = request.response_format.json_schema.json_schema
        yield Constraint("response_format.json_schema.schema", StructuredOutputsParams(json=schema))
    for index, tool in enumerate(request.tools or ()):
        if tool.function.parameters is not None:
            params = StructuredOutputsParams(json=tool.function.parameters)
            yield Constraint(f"tools[{index}].function.parameters", params, is_tool=True)
