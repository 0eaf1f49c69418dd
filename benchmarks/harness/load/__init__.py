"""A load generator that is no bottleneck: one process, callbacks on raw sockets, uvloop.

It keeps a number of requests in flight (a closed loop), checks every answer, and prints what it measured as JSON.
"""
