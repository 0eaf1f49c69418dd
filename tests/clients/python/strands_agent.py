"""Strands Agents: an agent with a tool on OpenAI's, Anthropic's and LiteLLM's models."""

from settings import API_KEY, BASE_URL, MODEL, QUESTION, SERVER
from strands import Agent, tool
from strands.models.anthropic import AnthropicModel
from strands.models.litellm import LiteLLMModel
from strands.models.openai import OpenAIModel
from strands.types.exceptions import MaxTokensReachedException


@tool
def look_up_weather(city: str) -> str:
    """Looks up the weather of a city."""
    return f"It rains in {city}."


openai = {"api_key": API_KEY, "base_url": BASE_URL}
models = (
    OpenAIModel(client_args=openai, model_id=MODEL),
    AnthropicModel(client_args={"api_key": API_KEY, "base_url": SERVER}, model_id=MODEL, max_tokens=20),
    LiteLLMModel(client_args={"api_key": API_KEY, "api_base": BASE_URL}, model_id=f"hosted_vllm/{MODEL}"),
)
for model in models:
    try:
        print(Agent(model=model, tools=[look_up_weather], callback_handler=None)(QUESTION))
    except MaxTokensReachedException as cut:  # The small model does not always end its response.
        print(cut)
