"""Pydantic AI: an agent on the responses API, which is the default, on chat completions and on Anthropic's messages."""

from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from settings import API_KEY, BASE_URL, MODEL, QUESTION, SERVER

provider = OpenAIProvider(base_url=BASE_URL, api_key=API_KEY)
for model in (OpenAIResponsesModel, OpenAIChatModel):
    print(Agent(model(MODEL, provider=provider)).run_sync(QUESTION).output)
anthropic = AnthropicModel(MODEL, provider=AnthropicProvider(base_url=SERVER, api_key=API_KEY))
print(Agent(anthropic, model_settings={"max_tokens": 20}).run_sync(QUESTION).output)
