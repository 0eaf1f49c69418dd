"""The HTTP operations: OpenAI-compatible operations, native invocation, and administration."""
