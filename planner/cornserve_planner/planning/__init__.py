"""Makes plans: from a request to a result."""
