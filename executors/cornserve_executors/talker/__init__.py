"""Speech of Qwen3-Omni on transformers. Only `executor.py` and `stats.py` can be imported without importing torch."""
