"""The OpenAI-compatible operations, one module each, and those of vLLM that OpenAI's API lacks."""
