"""LangChain: a chat, a stream, and a tool that the model must call."""

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from settings import API_KEY, BASE_URL, MODEL, QUESTION


@tool
def look_up_weather(city: str) -> str:
    """Looks up the weather of a city."""
    return f"It rains in {city}."


chat = ChatOpenAI(base_url=BASE_URL, api_key=API_KEY, model=MODEL)
print(chat.invoke(QUESTION).content)
print("".join(chunk.content for chunk in chat.stream(QUESTION)))
calls = chat.bind_tools([look_up_weather], tool_choice="look_up_weather").invoke("Weather in Paris?").tool_calls
assert calls[0]["name"] == "look_up_weather", calls
print(calls)
