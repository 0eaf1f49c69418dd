"""Connections, authentication, admission, and request and response bodies."""
