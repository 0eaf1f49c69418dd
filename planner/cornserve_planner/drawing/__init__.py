"""Diagrams and time series as images."""
