"""What all executors on stock vLLM share, whatever they use it for.

Only `executor.py`, `loading.py` and `settings.py` can be imported without paying for vLLM.
"""
