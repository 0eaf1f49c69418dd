"""The OpenAI-compatible operations: chats, completions, embeddings and the list of models."""
