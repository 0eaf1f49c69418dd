"""The OpenAI-compatible interface: `chat` and `models`."""
