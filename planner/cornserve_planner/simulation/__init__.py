"""Simulates the serving of a plan: a heap of events, replicas in closed form, and the decisions of the runtime.

The decisions are those of `cornserve_policies`, which the gateway calls as well.
"""
