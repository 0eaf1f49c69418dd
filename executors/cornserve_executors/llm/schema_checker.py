"""Which schema of a chat it is of which vLLM can make no grammar.

vLLM makes one grammar of all tools, or of the answer's form. What is wrong with it, it says of the whole, or, where it
finds that out in the engine, not at all. So once that has happened, the schemas are tried one by one.
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

from cornserve_tasklib.chat import ChatRequest
from cornserve_tasklib.llm import LLMRequest

FORM = "response_format.json_schema.schema"

_ORIGIN = re.compile(r"\[[\d:]+\] \S+\.cc:\d+: ")
"""Where in xgrammar's own source an error comes from, and when."""


class SchemaChecker:
    def __init__(self, vllm_config: Any, tokenizer: Any) -> None:
        self._vllm_config = vllm_config
        self._tokenizer = tokenizer

    def complaint(self, request: LLMRequest) -> str | None:
        """About the first that cannot be followed, by its field. Blocks while it compiles them."""
        for field, schema in request_schemas(request):
            try:
                if field == FORM:
                    _check_keywords(schema)
                self._try(schema)
            except Exception as error:
                return f"{field}: {_ORIGIN.sub('', str(error)).strip()}"
        return None

    def _try(self, schema: dict[str, Any]) -> None:
        grammar = self._backend.compile_grammar(StructuredOutputOptions.JSON, dumps(schema))
        allowed = self._backend.allocate_token_bitmask(1)
        grammar.fill_bitmask(allowed, 0)
        if not allowed.any():
            raise ValueError("nothing can follow it")

    @cached_property
    def _backend(self) -> XgrammarBackend:
        vocabulary = self._vllm_config.model_config.get_vocab_size()
        return XgrammarBackend(self._vllm_config, tokenizer=self._tokenizer, vocab_size=vocabulary)


def _check_keywords(schema: dict[str, Any]) -> None:
    """vLLM lets tools have those that a grammar cannot keep."""
    validate_xgrammar_grammar(SamplingParams(structured_outputs=StructuredOutputsParams(json=schema)))


def request_schemas(request: LLMRequest) -> Iterator[tuple[str, dict[str, Any]]]:
    """With their fields."""
    if not isinstance(request, ChatRequest):
        return
    if request.response_format is not None and request.response_format.json_schema is not None:
        yield FORM, request.response_format.json_schema.json_schema
    for index, tool in enumerate(request.tools or ()):
        if tool.function.parameters is not None:
            yield f"tools[{index}].function.parameters", tool.function.parameters
