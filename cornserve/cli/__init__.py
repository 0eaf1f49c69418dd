"""The command line, with one module per command.

Commands import their dependencies when they run, so that `cornserve --help` and shell completion are fast.
"""

from cornserve.cli.commands import main

__all__ = ["main"]
