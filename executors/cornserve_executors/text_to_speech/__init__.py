"""Text-to-speech models on transformers.

Only `executor.py`, `sentences.py` and `stats.py` can be imported without importing torch.
"""
