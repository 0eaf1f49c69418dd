"""Apps: what is deployed under a model name."""
