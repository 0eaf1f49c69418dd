"""Speech of Qwen3-Omni on transformers."""
