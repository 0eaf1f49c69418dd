"""Instructor: a response of a Pydantic type, by a tool call and by a JSON schema."""

import instructor
from openai import OpenAI
from pydantic import BaseModel
from settings import API_KEY, BASE_URL, MODEL


class Person(BaseModel):
    name: str
    age: int


client = OpenAI(base_url=BASE_URL, api_key=API_KEY)
messages = [{"role": "user", "content": "Extract the person: Anna is 31 years old."}]
for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
    typed = instructor.from_openai(client, mode=mode)
    print(typed.chat.completions.create(model=MODEL, response_model=Person, messages=messages))
