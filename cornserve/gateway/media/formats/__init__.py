"""Header readers, one module per format."""
