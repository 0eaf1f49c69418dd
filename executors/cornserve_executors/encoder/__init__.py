"""Executors that turn images into embeddings for a language model: its vision tower and projector alone.

Only `executor.py`, `batcher.py`, `single_flight.py` and `stats.py` can be imported without importing torch.
"""
