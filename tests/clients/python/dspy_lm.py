"""DSPy: a call of the language model. Its programs need a larger model than that of the tests."""

import dspy
from settings import API_KEY, BASE_URL, MODEL, QUESTION

lm = dspy.LM(f"openai/{MODEL}", api_base=BASE_URL, api_key=API_KEY)
print(lm(QUESTION)[0])
