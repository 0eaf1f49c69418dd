"""Whole Omni models on transformers. Only `executor.py` and `stats.py` can be imported without importing torch."""
