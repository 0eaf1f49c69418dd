"""Runs the code of apps in separate processes."""
