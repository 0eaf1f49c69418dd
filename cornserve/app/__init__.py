"""Apps: the definition, the source and the stored record of a model that clients can request."""
