"""Language models on stock vLLM.

`executor.py` manages the process, `engine.py` wraps vLLM's engine. Only `executor.py` can be imported without importing
vLLM.
"""
