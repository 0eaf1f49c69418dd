"""The producer's end: publishes tensors and announces them to subscribers."""
