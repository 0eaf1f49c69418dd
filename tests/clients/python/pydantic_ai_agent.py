"""Pydantic AI: an agent on the responses API, which is the default, and on chat completions."""

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from settings import API_KEY, BASE_URL, MODEL, QUESTION

provider = OpenAIProvider(base_url=BASE_URL, api_key=API_KEY)
for model in (OpenAIResponsesModel, OpenAIChatModel):
    print(Agent(model(MODEL, provider=provider)).run_sync(QUESTION).output)
