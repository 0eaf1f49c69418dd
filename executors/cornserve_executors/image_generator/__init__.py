"""Image generation models on diffusers. Only `executor.py` and `stats.py` can be imported without importing torch."""
