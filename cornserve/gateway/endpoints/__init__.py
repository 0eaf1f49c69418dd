"""The HTTP interfaces: OpenAI's, the native one, administration."""
