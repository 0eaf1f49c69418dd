"""The HTTP operations: OpenAI-compatible ones, the native one, and administration."""
