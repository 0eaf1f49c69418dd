"""LiteLLM: a chat and a stream, as an OpenAI-compatible and as a vLLM server, and a ranking of documents."""

import litellm
from settings import API_KEY, BASE_URL, MODEL, QUESTION, RERANKER, SERVER

messages = [{"role": "user", "content": QUESTION}]
for provider in ("openai", "hosted_vllm"):
    given = {"model": f"{provider}/{MODEL}", "api_base": BASE_URL, "api_key": API_KEY, "messages": messages}
    print(litellm.completion(**given).choices[0].message.content)
    print("".join(chunk.choices[0].delta.content or "" for chunk in litellm.completion(**given, stream=True)))

documents = ["red", "", "blue"]
ranking = litellm.rerank(
    model=f"hosted_vllm/{RERANKER}", query=QUESTION, documents=documents, api_base=SERVER, api_key=API_KEY
)
assert [result["index"] for result in ranking.results] == [2, 0, 1], ranking.results
print(ranking.results[0])
