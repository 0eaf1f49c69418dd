"""Replicas with set service times, and gateways that route invocations to them."""
