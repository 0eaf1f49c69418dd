"""A unit task that echoes its input, and its executor.

The package shows everything that a plug-in with a unit task needs. The gateway's tests and benchmarks use it in place
of a model.
"""

from cornserve_echo.task import EchoRequest, EchoResponse, EchoTask

__all__ = ["EchoRequest", "EchoResponse", "EchoTask"]
