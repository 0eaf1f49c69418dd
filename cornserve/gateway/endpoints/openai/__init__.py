"""The OpenAI-compatible operations: chats, completions, embeddings, transcriptions and the list of models."""
