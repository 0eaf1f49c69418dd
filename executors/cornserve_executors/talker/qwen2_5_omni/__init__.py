"""Speech of Qwen2.5-Omni on transformers."""
