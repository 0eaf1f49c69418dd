"""Metrics, traces and logs of requests and replicas."""
