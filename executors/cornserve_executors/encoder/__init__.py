"""Executors that turn media into embeddings for a language model: its vision or audio tower and projector alone.

Only `executor.py`, `batcher.py`, `single_flight.py` and `stats.py` can be imported without importing torch.
"""
