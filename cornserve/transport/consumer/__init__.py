"""The consumer's end: subscribes to tensors and makes them readable."""
