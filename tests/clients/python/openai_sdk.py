"""The official OpenAI client: chat, completions and responses, streamed and not streamed."""

from openai import OpenAI
from settings import API_KEY, BASE_URL, MODEL, QUESTION

client = OpenAI(base_url=BASE_URL, api_key=API_KEY)
messages = [{"role": "user", "content": QUESTION}]
chat = client.chat.completions.create(model=MODEL, messages=messages)
print(chat.choices[0].message.content)
print(
    "".join(
        chunk.choices[0].delta.content or ""
        for chunk in client.chat.completions.create(model=MODEL, messages=messages, stream=True)
    )
)
print(client.completions.create(model=MODEL, prompt="The sea is").choices[0].text)
print(client.responses.create(model=MODEL, input=QUESTION).output_text)
# A sampled response may reach the context length, and is then incomplete, which the client refuses.
with client.responses.stream(model=MODEL, input=QUESTION, temperature=0) as stream:
    print(stream.get_final_response().output_text)
