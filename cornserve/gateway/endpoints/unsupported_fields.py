"""Fields of other servers' APIs that Cornserve refuses for a reason that clients should know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_STATELESS: Final = "responses are not stored: send the earlier items with each request"

UNSUPPORTED_FIELDS: Final[Mapping[str, str]] = {
    # OpenAI
    "conversation": _STATELESS,
    "function_call": "use tool_choice",
    "functions": "use tools",
    "moderation": "nothing moderates requests and responses: remove it",
    "previous_response_id": _STATELESS,
    "web_search_options": "nothing searches the web: give the model a tool",
    # Anthropic
    "container": "tools run at the client: remove it",
    "inference_geo": "requests run where the instance runs: remove it",
    "mcp_servers": "tools run at the client: give those of the MCP server as tools",
    "thread": "messages are not stored: send all of them",
    # Cohere
    "max_chunks_per_doc": "documents are not divided into chunks: use max_tokens_per_doc",
    # vLLM
    "vllm_xargs": "no extension of vLLM that reads it can be deployed: remove it",
    "watermarking": "an app has watermarks by its --engine-arg watermark_config, not by its requests: remove it",
}
"""The reasons, and what to do, by field."""
