"""Which components to run together or apart, and how many replicas of each: pure functions, usable without a cluster."""
