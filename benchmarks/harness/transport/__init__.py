"""Two processes that pass tensors on, and what they are measured by."""
