"""Recomputes the papers' results from their inputs: `python -m benchmarks.reproduction` writes docs/reproduction.md."""
