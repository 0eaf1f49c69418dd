"""Code shared by all executors on stock vLLM.

Only `executor.py`, `engine_fork.py`, `engine_loader.py` and `settings.py` can be imported without importing vLLM.
"""
