"""A unit task that repeats what it is told, and its executor.

It shows all that a package needs to bring a unit task of its own to Cornserve, and it is what the
gateway's benchmarks and tests call where a model would only be in the way.
"""

from cornserve_echo.task import EchoRequest, EchoResponse, EchoTask

__all__ = ["EchoRequest", "EchoResponse", "EchoTask"]
