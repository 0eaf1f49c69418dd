"""The command line: one command per file.

What a command needs is imported when it runs, so that `cornserve --help` and shell completion answer at once.
"""

from cornserve.cli.commands import main

__all__ = ["main"]
