"""Launcher for one machine. Each replica is a process with its own session, directory and device slots."""
