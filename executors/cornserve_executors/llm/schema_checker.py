"""Finds the JSON schema of a request that vLLM cannot compile to a grammar.

vLLM compiles one grammar for all tools, or for the response format. Its error does not name the schema, and an error in
the engine has no message at all. After such an error, this module compiles the schemas one by one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from json import dumps
from typing import Any

from vllm import SamplingParams
from vllm.sampling_params import StructuredOutputsParams
from vllm.v1.structured_output.backend_types import StructuredOutputOptions
from vllm.v1.structured_output.backend_xgrammar import XgrammarBackend, validate_xgrammar_grammar

from cornserve_tasklib.chat_request import ChatRequest
from cornserve_tasklib.llm import LLMRequest

RESPONSE_SCHEMA = "response_format.json_schema.schema"

_SOURCE_LOCATION = re.compile(r"\[[\d:]+\] \S+\.cc:\d+: ")
"""Timestamp and source location at the start of xgrammar's errors."""


class SchemaChecker:
    def __init__(self, vllm_config: Any, tokenizer: Any) -> None:
        self._vllm_config = vllm_config
        self._tokenizer = tokenizer

    def find_error(self, request: LLMRequest) -> str | None:
        """Returns the error of the first schema that cannot be compiled, with its field. Blocks."""
        for field, schema in request_schemas(request):
            try:
                if field == RESPONSE_SCHEMA:
                    _check_keywords(schema)
                self._compile(schema)
            except Exception as error:
                return f"{field}: {_SOURCE_LOCATION.sub('', str(error)).strip()}"
        return None

    def _compile(self, schema: dict[str, Any]) -> None:
        grammar = self._backend.compile_grammar(StructuredOutputOptions.JSON, dumps(schema))
        allowed = self._backend.allocate_token_bitmask(1)
        grammar.fill_bitmask(allowed, 0)
        if not allowed.any():
            raise ValueError("no text matches the schema")

    @cached_property
    def _backend(self) -> XgrammarBackend:
        vocabulary = self._vllm_config.model_config.get_vocab_size()
        return XgrammarBackend(self._vllm_config, tokenizer=self._tokenizer, vocab_size=vocabulary)


def _check_keywords(schema: dict[str, Any]) -> None:
    """Raises `ValueError` for keywords that a grammar cannot enforce. vLLM allows them in tools."""
    validate_xgrammar_grammar(SamplingParams(structured_outputs=StructuredOutputsParams(json=schema)))


def request_schemas(request: LLMRequest) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the field and the JSON schema of each schema in the request."""
    if not isinstance(request, ChatRequest):
        return
    if request.response_format is not None and request.response_format.json_schema is not None:
        yield RESPONSE_SCHEMA, request.response_format.json_schema.json_schema
    for index, tool in enumerate(request.tools or ()):
        if tool.function.parameters is not None:
            yield f"tools[{index}].function.parameters", tool.function.parameters
