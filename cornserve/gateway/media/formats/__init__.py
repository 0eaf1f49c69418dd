"""Header readers, one module per image format."""
