"""Images as embeddings for a language model: its vision tower and projector, without the language model.

Only `executor.py`, `batcher.py`, `flights.py` and `stats.py` can be imported without paying for torch.
"""
