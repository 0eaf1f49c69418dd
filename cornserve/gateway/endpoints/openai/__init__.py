"""The OpenAI-compatible interface: chats, completions, embeddings and the list of models."""
