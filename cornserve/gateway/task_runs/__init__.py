"""Runs the tasks of requests: executes their code, records the invocations, and replays the code with their outputs.

The tasks of `cornserve_tasklib` run in the gateway's process (`local_app`). All other tasks run in app hosts.
"""
