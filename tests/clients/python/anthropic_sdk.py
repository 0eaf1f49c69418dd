"""The official Anthropic client: messages, streamed and not streamed."""

from anthropic import Anthropic
from settings import API_KEY, MODEL, QUESTION, SERVER

client = Anthropic(base_url=SERVER, api_key=API_KEY)
request = {"model": MODEL, "max_tokens": 20, "messages": [{"role": "user", "content": QUESTION}]}
print(client.messages.create(**request).content[0].text)
with client.messages.stream(**request) as stream:
    print("".join(stream.text_stream))
