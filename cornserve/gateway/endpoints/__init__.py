"""The HTTP interfaces: OpenAI's, the native one, administration; `serving` is what those that serve apps share."""
