"""What follows from the papers' own figures: `python -m benchmarks.reproduction` writes docs/reproduction.md."""
