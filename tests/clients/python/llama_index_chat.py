"""LlamaIndex: a chat, a stream, and a completion."""

from llama_index.core.llms import ChatMessage
from llama_index.llms.openai_like import OpenAILike
from settings import API_KEY, BASE_URL, MODEL, QUESTION

llm = OpenAILike(api_base=BASE_URL, api_key=API_KEY, model=MODEL, is_chat_model=True)
print(llm.chat([ChatMessage(role="user", content=QUESTION)]).message.content)
print("".join(part.delta for part in llm.stream_chat([ChatMessage(role="user", content=QUESTION)])))
print(OpenAILike(api_base=BASE_URL, api_key=API_KEY, model=MODEL).complete("The sea is").text)
