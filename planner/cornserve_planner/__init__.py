"""Which components to run together or apart, and how many replicas of each. Pure functions, usable alone."""
