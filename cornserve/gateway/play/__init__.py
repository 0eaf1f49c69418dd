"""Plays tasks for requests: runs their code, records the invocations, and replays the code with their outputs.

The tasks of `cornserve_tasklib` play in the gateway's process (`local_app`). All other tasks play in app hosts.
"""
