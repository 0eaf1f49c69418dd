"""Google's Agent Development Kit: an agent with a tool, on LiteLLM's model of a vLLM server."""

import asyncio

from google.adk.agents import Agent
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import InMemoryRunner
from google.genai.types import FinishReason
from settings import API_KEY, BASE_URL, MODEL, QUESTION


def look_up_weather(city: str) -> str:
    """Looks up the weather of a city."""
    return f"It rains in {city}."


async def main() -> None:
    model = LiteLlm(model=f"hosted_vllm/{MODEL}", api_base=BASE_URL, api_key=API_KEY)
    agent = Agent(name="assistant", model=model, instruction="Be brief.", tools=[look_up_weather])
    async with InMemoryRunner(agent=agent) as runner:
        for event in await runner.run_debug(QUESTION, quiet=True):
            # A sampled response may reach the context length.
            assert event.error_code in (None, FinishReason.MAX_TOKENS), event.error_message
            print(event.content)


asyncio.run(main())
