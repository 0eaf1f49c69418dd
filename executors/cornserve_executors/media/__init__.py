"""What executors do with media before a model sees them, whichever model it is."""
