"""Decisions as pure code, which gateways, controllers, executors and the planner share.

A decision depends on its arguments alone. The time is an argument, in seconds of any monotonic clock, and random
numbers are hashes of request ids.
"""
