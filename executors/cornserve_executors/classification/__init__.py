"""Classifiers on stock vLLM. Only `executor.py` can be imported without importing vLLM."""
