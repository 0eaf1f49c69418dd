"""The OpenAI Agents SDK: an agent on the responses API, which is the default, and on chat completions."""

from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, set_tracing_disabled
from openai import AsyncOpenAI
from settings import API_KEY, BASE_URL, MODEL, QUESTION

set_tracing_disabled(True)
client = AsyncOpenAI(base_url=BASE_URL, api_key=API_KEY)
for model in (OpenAIResponsesModel, OpenAIChatCompletionsModel):
    agent = Agent(name="Assistant", instructions="Be brief.", model=model(model=MODEL, openai_client=client))
    print(Runner.run_sync(agent, QUESTION).final_output)
