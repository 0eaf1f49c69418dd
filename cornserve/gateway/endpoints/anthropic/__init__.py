"""The operations of Anthropic's API."""
