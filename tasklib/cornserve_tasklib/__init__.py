"""Unit tasks, composite tasks and model families that come with Cornserve."""

from cornserve_tasklib.chat import ChatChunk, ChatMessage, ChatRequest, ChatResponse, Usage
from cornserve_tasklib.llm import Chat, LLMTask

__all__ = ["Chat", "ChatChunk", "ChatMessage", "ChatRequest", "ChatResponse", "LLMTask", "Usage"]
