"""The official Anthropic client: messages, streamed and not streamed, models, and the runner of tools."""

from anthropic import Anthropic, beta_tool
from settings import API_KEY, MODEL, QUESTION, SERVER


@beta_tool
def look_up_weather(city: str) -> str:
    """Looks up the weather of a city."""
    return f"It rains in {city}."


client = Anthropic(base_url=SERVER, api_key=API_KEY)
request = {"model": MODEL, "max_tokens": 20, "messages": [{"role": "user", "content": QUESTION}]}
print(client.messages.create(**request).content[0].text)
with client.messages.stream(**request) as stream:
    print("".join(stream.text_stream))
assert MODEL in [model.id for model in client.models.list()]
messages = [*client.beta.messages.tool_runner(**request, tools=[look_up_weather])]
assert messages, "the runner of tools has no message"
print(messages[-1].content)
