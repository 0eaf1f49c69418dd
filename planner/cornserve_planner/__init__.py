"""Plans which model components to run together or apart, and how many replicas of each to start.

The package consists of pure functions and can be used without the rest of Cornserve.
"""
