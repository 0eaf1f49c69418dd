"""What tells one family of multimodal models from another, a file for each."""
