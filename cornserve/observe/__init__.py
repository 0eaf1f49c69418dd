"""Logs, metrics and traces, as all processes have them. They hold nothing of what clients send or get."""
