"""Haystack: a chat, not streamed and streamed."""

from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.utils import Secret
from settings import API_KEY, BASE_URL, MODEL, QUESTION

given = {"api_key": Secret.from_token(API_KEY), "api_base_url": BASE_URL, "model": MODEL}
print(OpenAIChatGenerator(**given).run([ChatMessage.from_user(QUESTION)])["replies"][0].text)
parts = []
OpenAIChatGenerator(**given, streaming_callback=lambda chunk: parts.append(chunk.content)).run(
    [ChatMessage.from_user(QUESTION)]
)
print("".join(parts))
