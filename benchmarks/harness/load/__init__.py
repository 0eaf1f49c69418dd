"""A fast load generator: one process with callbacks on raw sockets and uvloop.

It keeps a number of requests in flight (a closed loop), checks every response, and prints its measurements as JSON.
"""
