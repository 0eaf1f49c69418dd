"""Speech of Omni models on transformers. Only executors and stats can be imported without importing torch."""
