"""Logs, metrics and traces of all processes. They never contain the content of requests or responses."""
