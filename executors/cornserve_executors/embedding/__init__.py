"""Texts as vectors, on stock vLLM. Only `executor.py` can be imported without paying for vLLM."""
